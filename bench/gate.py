"""Make callgate's side of each comparison: the full pipeline, with an authorization that allows everything."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from bench.subjects import Prepared, Subject
from bench.timing import Call
from bench.workloads import ANSWER, ARGUMENTS, Function
from callgate import Call as ToolCall
from callgate import ToolRegistry, tool

__all__ = ("CALLGATE", "gate_call", "registry_of")

LIMIT_S = 30.0


def registry_of(functions: Sequence[Function], **options: Any) -> ToolRegistry:
    """Make a sealed registry of `functions`; `options` go to each tool."""
    return ToolRegistry([tool(**options)(function) for function in functions], authorize=_allow)


async def gate_call(function: Function, **options: Any) -> Call:
    """Make a call of `function` and see that it gives the right value.

    Raises:
        AssertionError: It gave another value.
    """
    registry = registry_of([function], **options)
    call = partial(registry.ainvoke, function.__name__, ARGUMENTS)
    result = await call()
    if result.value != ANSWER:
        raise AssertionError(f"callgate answered {result.value!r} where {ANSWER!r} is right")
    return call


def _allow(_: ToolCall) -> bool:
    return True


async def _prepare(functions: Sequence[Function], limit_s: float | None) -> Prepared:
    registry = registry_of(functions, timeout_s=limit_s)

    def call(name: str, text: str) -> Awaitable[object]:
        return registry.ainvoke(name, text)

    return Prepared(call, _value)


def _value(answer: Any) -> object:
    return answer.value


CALLGATE = Subject(
    name="callgate",
    distribution="callgate",
    path="ToolRegistry.ainvoke",
    import_statement="import callgate",
    has_limit=True,
    prepare=_prepare,
)
