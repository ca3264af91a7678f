"""Measure async tools that wait, under a time limit, alone and with many in flight."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.bare import bare_with_limit
from bench.gate import LIMIT_S, gate_call
from bench.report import Claim, Section, Table, duration, ratio, spread
from bench.subjects import prepared_peers
from bench.timing import Contender, Measured, Options, batch_of, compare, one_after_another
from bench.workloads import Function, add_after_one_ms, add_after_yielding

__all__ = ("run",)

_TARGET = 1.5
_ONE_TURN = "one turn of the loop"
_WAITS: tuple[tuple[str, Function], ...] = ((_ONE_TURN, add_after_yielding), ("1 ms", add_after_one_ms))
_WIDTHS = (1, 100, 1000)
_NOTE = (
    "bare: validate, call under `asyncio.timeout`, dump. Peers are measured alone, for one turn of the loop, each with its own"
    " time limit where it has one."
)


@dataclass(frozen=True, slots=True)
class _Case:
    wait: str
    width: int
    measured: Sequence[Measured]


async def run(options: Options) -> Section:
    """Compare with bare under `asyncio.timeout`, for each wait and each number in flight."""
    cases = [await _case(wait, function, width, options) for wait, function in _WAITS for width in _WIDTHS]
    peers, missing = await _peers(options)
    rows = [row for case in (*cases, peers) for row in _rows(case)]
    table = Table(
        "Async tool that waits",
        ("waits for", "in flight", "who", "one call", "to bare", "middle half of rounds"),
        tuple(rows),
        _NOTE,
    )
    claims = tuple(
        Claim.at_most(f"async tool that waits {case.wait}, {case.width} in flight", _TARGET, case.measured[1].ratio)
        for case in cases
    )
    return Section("Async tool that waits", (table,), claims, tuple(missing))


async def _case(wait: str, function: Function, width: int, options: Options) -> _Case:
    gate = await gate_call(function, timeout_s=LIMIT_S)
    contenders = [
        Contender("bare + asyncio.timeout", batch_of(bare_with_limit(function, LIMIT_S), width), width),
        Contender("callgate", batch_of(gate, width), width),
    ]
    return _Case(wait, width, await compare(contenders, options.of_processor if wait == _ONE_TURN else options.finer))


async def _peers(options: Options) -> tuple[_Case, list[str]]:
    ready, missing = await prepared_peers(add_after_yielding, LIMIT_S)
    contenders = [Contender("bare + asyncio.timeout", one_after_another(bare_with_limit(add_after_yielding, LIMIT_S)))]
    for subject, call in ready:
        name = subject.name if subject.has_limit else f"{subject.name} (no limit)"
        contenders.append(Contender(name, one_after_another(call)))
    return _Case(_ONE_TURN, 1, (await compare(contenders, options.of_processor))[1:]), missing


def _rows(case: _Case) -> list[tuple[str, ...]]:
    return [
        (case.wait, str(case.width), each.contender.name, duration(each.call_s), ratio(each.ratio), spread(each))
        for each in case.measured
    ]
