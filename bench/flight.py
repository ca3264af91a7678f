"""Measure throughput with 1 to 1,000 calls in flight, of a tool that gives way once."""

from bench.bare import bare_with_limit
from bench.gate import LIMIT_S, gate_call
from bench.report import Section, Table
from bench.subjects import prepared_peers
from bench.timing import Call, Contender, Measured, Options, compare, in_flight
from bench.workloads import add_after_yielding

__all__ = ("run",)

_WIDTHS = (1, 10, 100, 1_000)
_NOTE = (
    "Calls a second in one process on one event loop, each call in a task of its own; the tool waits for one turn of the loop."
)


async def run(options: Options) -> Section:
    """Compare the calls a second of all, for each number in flight."""
    ready, missing = await prepared_peers(add_after_yielding, LIMIT_S)
    calls = [
        ("bare + asyncio.timeout", bare_with_limit(add_after_yielding, LIMIT_S)),
        ("callgate", await gate_call(add_after_yielding, timeout_s=LIMIT_S)),
        *[(subject.name, call) for subject, call in ready],
    ]
    by_width = [await _compare(calls, width, options) for width in _WIDTHS]
    rows = tuple((name, *[_rate(measured[place]) for measured in by_width]) for place, (name, _) in enumerate(calls))
    table = Table("Calls a second", ("who", *[f"{width:,} in flight" for width in _WIDTHS]), rows, _NOTE)
    return Section("Calls in flight", (table,), missing=tuple(missing))


async def _compare(calls: list[tuple[str, Call]], width: int, options: Options) -> list[Measured]:
    return await compare([Contender(name, in_flight(call, width), width) for name, call in calls], options.of_processor)


def _rate(measured: Measured) -> str:
    return f"{1 / measured.call_s:,.0f}"
