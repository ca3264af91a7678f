"""Measure tools that run in a process, beside the standard library's pool of processes."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter

from bench.bare import bare_in_executor
from bench.gate import LIMIT_S, gate_call
from bench.report import Section, Table, comparison, duration
from bench.timing import Call, Contender, Measured, Options, batch_of, compare
from bench.workloads import add_blocking

__all__ = ("run",)

_WORKERS = 2
_WIDE = 8
_NOTE = (
    f"bare: validate, `ProcessPoolExecutor` of {_WORKERS} workers, dump; callgate: at most {_WORKERS} at a time. The pool cannot"
    " stop a job that has begun; callgate kills the worker at the limit. No peer runs a tool in a process."
)


async def run(options: Options) -> Section:
    """Compare with `ProcessPoolExecutor`, warm; and the first call, workers' start included."""
    begun = perf_counter()
    gate = await gate_call(add_blocking, run_in="process", timeout_s=LIMIT_S, max_concurrency=_WORKERS)
    gate_first_s = perf_counter() - begun
    with ProcessPoolExecutor(_WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        bare = bare_in_executor(add_blocking, pool)
        begun = perf_counter()
        await bare()
        bare_first_s = perf_counter() - begun
        alone = await _compare([("bare", bare), ("callgate", gate)], 1, options)
        wide = await _compare([("bare", bare), ("callgate", gate)], _WIDE, options)
    first = Table(
        "First call, with the start of a worker",
        ("who", "first call"),
        (("bare", duration(bare_first_s)), ("callgate", duration(gate_first_s))),
    )
    return Section(
        "Tool in a process",
        (comparison("One call after another", alone, _NOTE), comparison(f"{_WIDE} calls in flight", wide), first),
    )


async def _compare(calls: Sequence[tuple[str, Call]], width: int, options: Options) -> list[Measured]:
    return await compare([Contender(name, batch_of(call, width), width) for name, call in calls], options.finer)
