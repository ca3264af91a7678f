"""Time contenders against each other in interleaved rounds, so that a noisy machine disturbs them all alike."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles
from time import perf_counter, thread_time

__all__ = ("Batch", "Call", "Contender", "Measured", "Options", "batch_of", "compare", "in_flight", "one_after_another")

Call = Callable[[], Awaitable[object]]
Batch = Callable[[int], Awaitable[None]]

_LEAST_ROUNDS_FOR_QUARTILES = 2


@dataclass(frozen=True, slots=True)
class Options:
    """Say how long to measure: `rounds` rounds of about `round_s` seconds for each contender.

    `clock` gives seconds; by default they are those on the wall. `quick` asks the sections for smaller sizes as well: its
    figures are for development.
    """

    quick: bool = False
    rounds: int = 15
    round_s: float = 0.05
    clock: Callable[[], float] = perf_counter

    @property
    def of_processor(self) -> "Options":
        """The same, timed by this thread's processor time: for work that never waits, where other programs only disturb."""
        return replace(self, clock=thread_time)

    @property
    def finer(self) -> "Options":
        """The same time in four times as many rounds: for times on the wall, where neighbours in time are most alike."""
        return replace(self, rounds=self.rounds * 4, round_s=self.round_s / 4)


@dataclass(frozen=True, slots=True)
class Contender:
    """Name one side of a comparison. `batch(n)` makes at least `n` calls, `width` of them at a time."""

    name: str
    batch: Batch
    width: int = 1
    about: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold a contender's median time for one call and its ratio to the first contender, taken round by round."""

    contender: Contender
    call_s: float
    ratio: float
    low: float
    high: float


def one_after_another(call: Call) -> Batch:
    """Make a batch of calls, each awaited before the next."""

    async def batch(count: int) -> None:
        for _ in range(count):
            await call()

    return batch


def in_flight(call: Call, width: int) -> Batch:
    """Make a batch of calls, `width` at a time in tasks of their own."""

    async def batch(count: int) -> None:
        for _ in range(-(-count // width)):
            await asyncio.gather(*[call() for _ in range(width)])

    return batch


def batch_of(call: Call, width: int) -> Batch:
    """Make a batch of one call after another, or of `width` in flight when that is more than one."""
    return one_after_another(call) if width == 1 else in_flight(call, width)


async def compare(contenders: Sequence[Contender], options: Options) -> list[Measured]:
    """Measure all contenders in rounds; the first is what the others are compared with."""
    # What the peers' imports left on the heap is no cost of a call: keep it out of the collections during the rounds.
    gc.collect()
    gc.freeze()
    try:
        times = await _rounds(contenders, options)
    finally:
        gc.unfreeze()
    return [_measured(contender, own, times[0]) for contender, own in zip(contenders, times, strict=True)]


async def _rounds(contenders: Sequence[Contender], options: Options) -> list[list[float]]:
    counts = [await _calls_in(contender, options) for contender in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for turn in range(options.rounds):
        for place in _order(len(contenders), turn):
            times[place].append(await _time(contenders[place], counts[place], options.clock))
    return times


def _order(size: int, turn: int) -> list[int]:
    """Begin each round with another contender, so that none always runs on the caches of the same one before it."""
    return [(place + turn) % size for place in range(size)]


async def _calls_in(contender: Contender, options: Options) -> int:
    """Find how many calls fill about a round; this is the warm-up as well."""
    count = contender.width
    while (taken := await _time(contender, count, options.clock) * count) < options.round_s / 4:
        count *= 2
    # A whole number of batches: time is counted for the calls that are really made.
    return max(contender.width, round(count * options.round_s / taken / contender.width) * contender.width)


async def _time(contender: Contender, count: int, clock: Callable[[], float]) -> float:
    gc.collect()
    begun = clock()
    await contender.batch(count)
    return (clock() - begun) / count


def _measured(contender: Contender, own: Sequence[float], reference: Sequence[float]) -> Measured:
    ratios = [mine / other for mine, other in zip(own, reference, strict=True)]
    low, _, high = quantiles(ratios, n=4) if len(ratios) >= _LEAST_ROUNDS_FOR_QUARTILES else ratios * 3
    return Measured(contender, median(own), median(ratios), low, high)
