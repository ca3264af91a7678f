"""Keep outputs that are too large for the model, and page through them.

A handle cannot be guessed and opens only in the thread (conversation) whose call wrote it. Pages count UTF-8 bytes and
never split a character: put together, they are the text.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from callgate.errors import InvalidInputError, ToolError
from callgate.values import ToolAnswer

__all__ = ("MAX_PAGE_BYTES", "PAGE_BYTES", "READ_OUTPUT", "MemorySpill", "SpillPage", "SpillStore", "page_of", "read_output")

READ_OUTPUT: Final = "read_output"
"""The name of the built-in tool with which a model pages through a kept output."""

PAGE_BYTES: Final = 8_000
"""The size of a page when the model names none, in UTF-8 bytes."""

MAX_PAGE_BYTES: Final = 64_000
"""The most UTF-8 bytes that one page has, whatever the model asks for."""


@dataclass(frozen=True, slots=True)
class SpillPage:
    """Hold a part of a kept text: the bytes from `offset` on, of `total_bytes`; `next_offset` is None on the last page."""

    text: str
    offset: int
    next_offset: int | None
    total_bytes: int


class SpillStore(Protocol):
    """Keep texts until they are read; what is kept longest may be dropped at any time. Safe for several threads."""

    def put(self, text: str, thread_id: str | None) -> str | None:
        """Keep `text` for the thread; give a handle that cannot be guessed, or None when the text is too large to keep."""
        ...

    def read(self, handle: str, offset: int, limit: int, thread_id: str | None) -> SpillPage | None:
        """Give the page at byte `offset` (0 or more) of at most `limit` bytes (1 or more).

        None when the thread has no such handle: never given out, given to another thread, or dropped meanwhile.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Kept:
    data: bytes
    thread_id: str | None


class MemorySpill:
    """Keep texts in this process, `max_bytes` in all; the oldest make room for a new one."""

    def __init__(
        self, max_bytes: int = 64 * 1024 * 1024, *, new_handle: Callable[[], str] = lambda: secrets.token_hex(16)
    ) -> None:
        self.max_bytes = max_bytes
        self._new_handle = new_handle
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """The UTF-8 bytes that are kept now."""
        return self._size_bytes

    def put(self, text: str, thread_id: str | None) -> str | None:
        """Keep `text` and drop the oldest for it; None, and nothing dropped, when it is larger than `max_bytes`."""
        kept = _Kept(text.encode(), thread_id)
        if len(kept.data) > self.max_bytes:
            return None
        handle = self._new_handle()
        with self._lock:
            while self._size_bytes + len(kept.data) > self.max_bytes:
                self._size_bytes -= len(self._kept.popitem(last=False)[1].data)
            self._kept[handle] = kept
            self._size_bytes += len(kept.data)
        return handle

    def read(self, handle: str, offset: int, limit: int, thread_id: str | None) -> SpillPage | None:
        """Give a page, None for a handle that this thread does not have."""
        with self._lock:
            kept = self._kept.get(handle)
        if kept is None or kept.thread_id != thread_id:
            return None
        return page_of(kept.data, offset, limit)


def page_of(data: bytes, offset: int, limit: int) -> SpillPage:
    """Cut a page out of UTF-8 `data`: at most `limit` bytes, but at least one character, from the character at `offset` on."""
    start = _character_start(data, min(offset, len(data)))
    end = _character_start(data, min(start + limit, len(data)))
    if end <= start:
        end = _character_end(data, start)
    return SpillPage(data[start:end].decode(), start, end if end < len(data) else None, len(data))


def _character_start(data: bytes, index: int) -> int:
    while 0 < index < len(data) and data[index] & 0xC0 == 0x80:  # a byte within a character, in UTF-8
        index -= 1
    return index


def _character_end(data: bytes, start: int) -> int:
    end = min(start + 1, len(data))
    while end < len(data) and data[end] & 0xC0 == 0x80:  # a byte within a character, in UTF-8
        end += 1
    return end


def read_output(
    store: SpillStore, thread_id: str | None, handle: str, offset: int = 0, limit: int = PAGE_BYTES
) -> ToolAnswer[SpillPage]:
    """Read a page of a kept output: the body of the built-in tool `read_output`, which adds `store` and `thread_id`.

    The program gets the page, the model its text and a line that says how to go on. `limit` above `MAX_PAGE_BYTES` is
    taken as that; the line comes on top of it.

    Raises:
        InvalidInputError: a negative `offset`, or a `limit` below 1.
        ToolError: code `output_not_found`, status 404: this thread has no such handle, or not any more.
    """
    if offset < 0:
        raise InvalidInputError.of(READ_OUTPUT, "offset", "a byte position from 0 on", "a negative number")
    if limit < 1:
        raise InvalidInputError.of(READ_OUTPUT, "limit", "at least 1 byte", "less")
    page = store.read(handle, offset, min(limit, MAX_PAGE_BYTES), thread_id)
    if page is None:
        raise ToolError(
            "There is no kept output of this handle here; it may have been dropped. Call the tool that gave it again.",
            code="output_not_found",
            status=404,
            try_other_arguments=False,
        )
    return ToolAnswer(page, text=_page_text(page))


def _page_text(page: SpillPage) -> str:
    end = page.total_bytes if page.next_offset is None else page.next_offset
    after = "the end" if page.next_offset is None else f"read on with offset {page.next_offset}"
    return f"{page.text}\n[bytes {page.offset} to {end} of {page.total_bytes}; {after}]"
