"""What the writer thread is asked to do, and how whoever asked is told."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection

from callgate.store.records import Entry, JournalRecord

__all__ = ("Work", "tell")

Waiting: TypeAlias = "asyncio.Future[Any] | Future[Any]"


@dataclass(slots=True, eq=False)
class Work:
    """Be one thing to write, and where its answer goes: to a future of an event loop, or to a thread that waits (no `loop`).

    `entry` is a record to claim a place for; with `judged` it is a start, which switches and the counters of `reserve` may
    forbid. `act` is done in the same transaction, for an entry only when its place was free. `alone`: no other process may
    write meanwhile. `answer` counts when the transaction is durable.
    """

    loop: asyncio.AbstractEventLoop | None
    future: Waiting
    entry: Entry | None = None
    judged: bool = False
    reserve: tuple[tuple[str, int], ...] = ()
    act: Callable[[Connection], object] | None = None
    alone: bool = False
    record: JournalRecord | None = None
    answer: object = None
    failed: BaseException | None = None


def tell(works: Sequence[Work]) -> None:
    """Tell everybody who waits: those of one event loop together, by one wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Work]] = {}
    for work in works:
        by_loop.setdefault(work.loop, []).append(work)
    for loop, told in by_loop.items():
        if loop is None:
            _settle(told)
            continue
        try:
            loop.call_soon_threadsafe(_settle, told)
        except RuntimeError:
            continue  # that loop is closed: nobody waits there any more


def _settle(works: Sequence[Work]) -> None:
    for work in works:
        if not work.future.done():
            if work.failed is None:
                work.future.set_result(work.answer)
            else:
                work.future.set_exception(work.failed)
