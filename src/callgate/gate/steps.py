"""The calls of one step: side by side, in the order of the calls, with barriers. Source: contract row P13, cases g1 to g10."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from callgate.gate.outcomes import Outcome
from callgate.gate.waiting import assured
from callgate.values import ToolCall

__all__ = ("Run", "run_step", "with_ids")

T = TypeVar("T")
Run = Callable[[ToolCall], Awaitable[Outcome]]


def with_ids(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Give each call of a step an id that no other one has: missing ones are numbered, repeated ones get a suffix.

    The same calls get the same ids again, so that a step can be repeated after a crash.
    """
    given = {call.id for call in calls if call.id}
    taken: set[str] = set()
    repaired: list[ToolCall] = []
    for place, call in enumerate(calls, 1):
        name = call.id or _free(f"call_{place}", given | taken)
        if name in taken:
            name = _free(f"{name}~2", given | taken, f"{name}~")
        taken.add(name)
        repaired.append(call if name == call.id else replace(call, id=name))
    return repaired


def _free(first: str, taken: set[str], stem: str | None = None) -> str:
    number = 2
    name = first
    while name in taken:
        number += 1
        name = f"{stem or first + '~'}{number}"
    return name


async def run_step(
    calls: Sequence[ToolCall],
    run: Run,
    *,
    is_exclusive: Callable[[ToolCall], bool],
    limit: int,
    on_outcome: Callable[[int, Outcome], None],
) -> list[Outcome]:
    """Run calls at most `limit` at a time; one that is exclusive runs alone, after those before it and before those behind.

    A call that ends badly is an outcome like any other. What is raised (an abort, the program's end) is raised only when no
    call of the step is at work any more.
    """
    outcomes: list[Outcome] = []
    for group in _groups(calls, is_exclusive):
        first = len(outcomes)
        outcomes += await _run_group(group, run, limit, lambda place, outcome, first=first: on_outcome(first + place, outcome))  # type: ignore[misc]  # the default binds the loop's value
    return outcomes


def _groups(calls: Sequence[ToolCall], is_exclusive: Callable[[ToolCall], bool]) -> Iterator[list[ToolCall]]:
    together: list[ToolCall] = []
    for call in calls:
        if not is_exclusive(call):
            together.append(call)
            continue
        if together:
            yield together
        yield [call]
        together = []
    if together:
        yield together


async def _run_group(calls: list[ToolCall], run: Run, limit: int, on_outcome: Callable[[int, Outcome], None]) -> list[Outcome]:
    if len(calls) == 1:
        outcome = await run(calls[0])
        on_outcome(0, outcome)
        return [outcome]
    places = asyncio.Semaphore(limit)

    async def run_one(place: int, call: ToolCall) -> Outcome:
        async with places:
            outcome = await run(call)
        on_outcome(place, outcome)
        return outcome

    tasks = [asyncio.ensure_future(run_one(place, call)) for place, call in enumerate(calls)]
    together = asyncio.gather(*tasks, return_exceptions=True)
    try:
        ends = await asyncio.shield(together)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await assured(together)  # every end is journalled before this task goes on
        raise
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return cast("list[Outcome]", ends)
