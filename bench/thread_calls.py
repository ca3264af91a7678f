"""Measure sync tools that run in a thread, alone and with 64 in flight."""

from bench.bare import bare_in_thread
from bench.gate import LIMIT_S, gate_call
from bench.report import Claim, Section, comparison
from bench.subjects import prepared_peers
from bench.timing import Contender, Measured, Options, batch_of, compare, one_after_another
from bench.workloads import add_blocking

__all__ = ("run",)

_TARGET = 1.3
_WIDE = 64
_NOTE = (
    "bare: validate, `asyncio.to_thread`, dump. Which peers use a thread for a sync tool, and which block the loop with it, is"
    " their own choice."
)


async def run(options: Options) -> Section:
    """Compare with `asyncio.to_thread`."""
    alone = await _pair(1, options)
    wide = await _pair(_WIDE, options)
    everyone, missing = await _everyone(options)
    return Section(
        "Sync tool in a thread",
        (
            comparison("One call after another", alone, _NOTE),
            comparison(f"{_WIDE} calls in flight", wide),
            comparison("Everyone, one call after another", everyone),
        ),
        (
            Claim.at_most("sync tool in a thread, 1 in flight", _TARGET, alone[1].ratio),
            Claim.at_most(f"sync tool in a thread, {_WIDE} in flight", _TARGET, wide[1].ratio),
        ),
        tuple(missing),
    )


async def _pair(width: int, options: Options) -> list[Measured]:
    gate = await gate_call(add_blocking, run_in="thread", timeout_s=LIMIT_S)
    calls = (("bare", bare_in_thread(add_blocking)), ("callgate", gate))
    return await compare([Contender(name, batch_of(call, width), width) for name, call in calls], options.finer)


async def _everyone(options: Options) -> tuple[list[Measured], list[str]]:
    gate = await gate_call(add_blocking, run_in="thread", timeout_s=LIMIT_S)
    ready, missing = await prepared_peers(add_blocking)
    contenders = [
        Contender("bare", one_after_another(bare_in_thread(add_blocking))),
        Contender("callgate", one_after_another(gate), about='run_in="thread"'),
        *[Contender(subject.name, one_after_another(call), about=subject.path) for subject, call in ready],
    ]
    return await compare(contenders, options), missing
