"""Cap what the model reads of an output: refuse it, cut it visibly, or keep it whole elsewhere and show its head.

The cap counts UTF-8 bytes of the text and of the text blocks, the marker included. Images and other bytes are no text:
they have a bound of their own, `MAX_BLOCK_BYTES` for all blocks of one answer. Source: contract row P6.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final

from callgate.errors import OutputTooLargeError
from callgate.tools.options import OnOversize
from callgate.tools.spill import PAGE_BYTES, READ_OUTPUT
from callgate.tools.writing import Written
from callgate.values import ContentBlock, TextBlock

__all__ = ("MAX_BLOCK_BYTES", "SPILLED", "TRUNCATED", "Keep", "cut_text", "limit_output")

MAX_BLOCK_BYTES: Final = 20 * 1024 * 1024
"""The most bytes that images and other binary blocks of one answer have together, whatever the cap of the text is."""

TRUNCATED: Final = "truncated"
SPILLED: Final = "spilled"

Keep = Callable[[str], str | None]
"""Keep a whole text elsewhere and give its handle, or None when it cannot be kept."""

_MIN_PIECE_BYTES: Final = 16
_MIN_SPILL_BYTES: Final = 256


def limit_output(
    tool: str, written: Written, limit_bytes: int | None, on_oversize: OnOversize, keep: Keep | None = None
) -> Written:
    """Give `written` as it is when it fits into `limit_bytes` (None: no cap), else as `on_oversize` says.

    "truncate" keeps head and tail around a marker with the original size. "spill" keeps the whole by `keep` and shows the
    head with the handle; without `keep`, when it gives None, or with too small a cap for the handle, it truncates.
    Several texts (text blocks among them) share the cap: short ones stay whole. `size_bytes` stays the original size.

    Raises:
        OutputTooLargeError: with "error", and always when the cap leaves no byte, or the blocks' bytes are over
            `MAX_BLOCK_BYTES`.
    """
    _check_blocks(tool, written.blocks)
    if limit_bytes is None:
        return written
    texts = [written.text, *(block.text for block in written.blocks if isinstance(block, TextBlock))]
    size_bytes = written.size_bytes if len(texts) == 1 else sum(map(_size, texts))
    if size_bytes <= limit_bytes:
        return written
    if on_oversize == "error" or limit_bytes < 1:
        raise OutputTooLargeError(tool, size_bytes, limit_bytes)
    return _shortened(written, texts, limit_bytes, keep if on_oversize == "spill" else None)


def cut_text(text: str, limit_bytes: int) -> str:
    """Cut `text` to `limit_bytes` UTF-8 bytes: head, a marker with the original size, and tail. At least 1 byte is given.

    A limit with no room for a marker gives the head and an ellipsis. Characters are never split.
    """
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    marker, room = _marker(len(data), limit_bytes)
    tail_bytes = room // 3 if len(marker) > 1 else 0
    head = data[: room - tail_bytes].decode(errors="ignore")  # what is ignored is the part of a character at the cut
    tail = data[len(data) - tail_bytes :].decode(errors="ignore")
    return head + marker + tail


def _marker(size_bytes: int, limit_bytes: int) -> tuple[str, int]:
    long = f"\n[... cut: the middle of {size_bytes} bytes is left out ...]\n"
    for marker, least_room in ((long, 2 * len(long)), (f"[...{size_bytes} bytes...]", 6), ("…", 0)):
        room = limit_bytes - _size(marker)
        if room >= least_room:
            return marker, room
    return "." * max(limit_bytes, 1), 0


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_blocks(tool: str, blocks: Sequence[ContentBlock]) -> None:
    if not blocks:
        return
    size_bytes = sum(len(block.data) for block in blocks if not isinstance(block, TextBlock))
    if size_bytes > MAX_BLOCK_BYTES:
        raise OutputTooLargeError(tool, size_bytes, MAX_BLOCK_BYTES)


def _shortened(written: Written, texts: Sequence[str], limit_bytes: int, keep: Keep | None) -> Written:
    blocks, notes = written.blocks, dict.fromkeys(written.notes)
    if limit_bytes // len(texts) < _MIN_PIECE_BYTES:  # a share would be no readable piece: the text goes before its blocks
        texts, blocks = texts[:1], tuple(block for block in blocks if not isinstance(block, TextBlock))
        notes[TRUNCATED] = None
    pieces = iter(_allowances([_size(text) for text in texts], limit_bytes))

    def fitted(text: str) -> str:
        shown, note = _fitted(text, next(pieces), keep)
        notes.update(dict.fromkeys(note))
        return shown

    text = fitted(written.text)
    shown = tuple(TextBlock(fitted(block.text)) if isinstance(block, TextBlock) else block for block in blocks)
    return written._replace(text=text, blocks=shown, notes=tuple(notes))


def _allowances(sizes: Sequence[int], limit_bytes: int) -> list[int]:
    """Share the limit: each text gets an equal part, and what short ones leave goes to the longer ones."""
    allowed, left = [0] * len(sizes), limit_bytes
    for rank, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        allowed[index] = min(sizes[index], left // (len(sizes) - rank))
        left -= allowed[index]
    return allowed


def _fitted(text: str, limit_bytes: int, keep: Keep | None) -> tuple[str, tuple[str, ...]]:
    if _size(text) <= limit_bytes:
        return text, ()
    spilled = _spilled(text, limit_bytes, keep) if keep is not None and limit_bytes >= _MIN_SPILL_BYTES else None
    return (spilled, (SPILLED,)) if spilled is not None else (cut_text(text, limit_bytes), (TRUNCATED,))


def _spilled(text: str, limit_bytes: int, keep: Keep) -> str | None:
    handle = keep(text)
    if handle is None:
        return None
    data = text.encode()
    room = limit_bytes - _size(_reading_on(handle, len(data), len(data)))
    if room < 0:
        return None
    head = data[:room].decode(errors="ignore")
    return head + _reading_on(handle, _size(head), len(data))


def _reading_on(handle: str, shown_bytes: int, size_bytes: int) -> str:
    arguments = json.dumps({"handle": handle, "offset": shown_bytes, "limit": PAGE_BYTES})
    return f"\n[cut here: {shown_bytes} of {size_bytes} bytes shown; the whole is kept. Read on with {READ_OUTPUT}({arguments})]"
