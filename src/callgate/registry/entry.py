"""A registered tool as the pipeline uses it: everything bound at registration. Source: contract row T4."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from callgate.errors import ToolDefinitionError
from callgate.running.slots import Slots
from callgate.tools.context import ToolContext
from callgate.tools.options import OnOversize, RunIn
from callgate.tools.tool import Tool
from callgate.values import UNSET, Unset

__all__ = ("Entry", "Limits", "entry_of")

_THREADS_PER_TOOL: Final = 32
_PROCESSES_PER_TOOL: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold what a registry falls back to: seconds, UTF-8 bytes, and the bodies given up that a tool may leave running."""

    timeout_s: float | None
    max_output_bytes: int | None
    max_abandoned: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Hold what one call needs of its tool. Nothing here reads the author's object again."""

    tool: Tool[Any, Any]
    name: str
    kind: str
    schema: dict[str, Any]
    parse: Callable[[bytes, dict[str, object]], object]
    call: Callable[[Any, ToolContext | None], object]
    check_output: Callable[[object], object] | None
    check_return: Callable[[object], str | None] | None
    is_async: bool
    wants_context: bool
    run_in: RunIn
    on_oversize: OnOversize
    timeout_s: float | None | Unset
    max_output_bytes: int | None
    slots: Slots


def entry_of(tool: Tool[Any, Any], limits: Limits) -> Entry:
    """Bind a tool for a registry with these limits.

    Raises:
        ToolDefinitionError: when a tool that is to run in a process cannot be sent there.
    """
    options = tool.options
    if options.run_in == "process":
        _check_sendable(tool)
    return Entry(
        tool=tool,
        name=tool.name,
        kind=options.kind,
        schema=tool.input_schema,
        parse=tool.input.parse,
        call=tool.call,
        check_output=None if tool.output is None else tool.output.parse,
        check_return=tool.check_return,
        is_async=tool.is_async,
        wants_context=tool.wants_context,
        run_in=options.run_in,
        on_oversize=options.on_oversize,
        timeout_s=options.timeout_s,
        max_output_bytes=limits.max_output_bytes if options.max_output_bytes is UNSET else options.max_output_bytes,
        slots=Slots(_places(tool), limits.max_abandoned),
    )


def _places(tool: Tool[Any, Any]) -> int | None:
    bound = {"inline": None, "thread": _THREADS_PER_TOOL, "process": _PROCESSES_PER_TOOL}[tool.options.run_in]
    return tool.options.max_concurrency or bound


def _check_sendable(tool: Tool[Any, Any]) -> None:
    # Imported here, once: the process runner takes 10 ms, and most programs have no tool that runs in a process.
    from callgate.running.processes import ProcessDataError, require_picklable  # noqa: PLC0415

    try:
        require_picklable(tool.function)
    except ProcessDataError as error:
        reason = f'run_in="process": {error.reason}'
    else:
        return
    raise ToolDefinitionError(tool.name, reason)
