"""Say what a library must give to be measured, and find those that are installed."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from bench.timing import Call
from bench.workloads import ANSWER, ARGUMENTS, Function

__all__ = ("PEER_MODULES", "Prepared", "Subject", "checked", "peers", "prepared_peers")

PEER_MODULES = ("openai_agents", "pydantic_ai", "mcp_sdk", "fast_mcp", "langchain_tools", "langgraph_nodes")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Call a tool by name with JSON text; `value_of` reads the tool's value out of the library's answer."""

    call: Callable[[str, str], Awaitable[object]]
    value_of: Callable[[object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Describe a library: its distribution, the path that is measured, and how to make tools of functions.

    `prepare(functions, limit_s)` sets a time limit of `limit_s` seconds on each tool when `has_limit` says that the
    library knows one; None sets none.
    """

    name: str
    distribution: str
    path: str
    import_statement: str
    has_limit: bool
    prepare: Callable[[Sequence[Function], float | None], Awaitable[Prepared]]


def peers() -> tuple[list[Subject], list[str]]:
    """Give the peers that can be imported, and for each other one its name with the reason."""
    found: list[Subject] = []
    missing: list[str] = []
    for name in PEER_MODULES:
        try:
            found.extend(import_module(f"bench.peers.{name}").SUBJECTS)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    return found, missing


async def prepared_peers(function: Function, limit_s: float | None = None) -> tuple[list[tuple[Subject, Call]], list[str]]:
    """Give each peer with its call of `function`, checked once, and those that cannot do it with the reason."""
    found, missing = peers()
    ready: list[tuple[Subject, Call]] = []
    for subject in found:
        try:
            ready.append((subject, await checked(subject, function, limit_s)))
        except Exception as error:  # a peer that fails is listed with its reason and keeps no other from running
            missing.append(f"{subject.name} ({type(error).__name__}: {error})")
    return ready, missing


async def checked(subject: Subject, function: Function, limit_s: float | None = None) -> Call:
    """Make `subject` ready to call `function` and see that it gives the right value.

    Raises:
        AssertionError: It gave another value.
    """
    prepared = await subject.prepare([function], limit_s)
    call = partial(prepared.call, function.__name__, ARGUMENTS)
    value = prepared.value_of(await call())
    if value != ANSWER:
        raise AssertionError(f"{subject.name} answered {value!r} where {ANSWER!r} is right")
    return call
