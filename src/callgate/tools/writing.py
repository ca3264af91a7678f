"""Write what a tool returned as the JSON text that the model reads, with bytes and images as content blocks beside it.

Always JSON, never `repr`: text becomes a JSON string, None `null`, so that no answer is empty and each is told from the
others. `callgate.tools.forms` has the form of each type; `callgate.tools.limiting` caps the text.
"""

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, Final, NamedTuple
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json

from callgate.errors import InvalidOutputError
from callgate.tools.forms import (
    MAX_DEPTH,
    MAX_DIGITS,
    Unwritable,
    checked_block,
    hides_something,
    mend_surrogates,
    plain_form,
    serializer_of,
    type_of,
)
from callgate.values import ContentBlock, TextBlock

__all__ = ("SURROGATES_REPLACED", "Written", "add_blocks", "write_output", "write_text")

SURROGATES_REPLACED: Final = "surrogates replaced"
"""The note of a text in which lone surrogates, which no UTF-8 text can hold, became U+FFFD."""

_PLAIN: Final = frozenset(
    {str, int, float, bool, NoneType, datetime, date, time, timedelta, UUID, Decimal, type(Path()), type(PurePath())}
)
_HALF_DIGITS: Final = MAX_DIGITS // 2


class Written(NamedTuple):
    """Hold an output as the model gets it: JSON `text`, never empty, and content `blocks`.

    `size_bytes` is the size of the whole text in UTF-8, also after `text` was cut to a cap. `notes` say what was changed
    on the way ("surrogates replaced", "truncated", "spilled"). A named tuple, for every call makes one and it costs a
    fifth of a frozen dataclass.
    """

    text: str
    size_bytes: int
    blocks: tuple[ContentBlock, ...] = ()
    notes: tuple[str, ...] = ()


# Past the Python-level constructor of a named tuple, which doubles the price of writing an integer.
_new: Final[Callable[[type[Written], tuple[object, ...]], Written]] = tuple.__dict__["__new__"]


def write_output(tool: str, value: object) -> Written:
    """Write `value`, returned by `tool`, as JSON text and content blocks.

    Raises:
        InvalidOutputError: the value, or a part of it, has no JSON form: NaN or infinity, a cycle, keys that become
            equal, nesting deeper than 128, an integer of more than 4300 digits, a type without a fixed form. Its problem
            names the path. Nothing else that derives from Exception is raised, whatever the value's own code does.
    """
    try:
        if type(value) is int:
            text = f"{value}"
            return _new(Written, (text, len(text), (), ()))
        data = to_json(value) if _is_plain(value) else None
    except Exception:  # noqa: BLE001 - the value's own class may raise anything; the careful way says where
        data = None
    if data is not None:
        text = data.decode()
        if _is_settled(text) and (len(data) <= MAX_DIGITS or not _has_long_digits(data)):
            return _new(Written, (text, len(data), (), ()))
    return _write_carefully(tool, value)


def write_text(tool: str, text: Any, blocks: Sequence[object] = ()) -> Written:
    """Take `text`, chosen by `tool` for the model in place of JSON, and content `blocks`; an empty text is written `""`.

    Raises:
        InvalidOutputError: `text` is no text, or one of `blocks` no content block.
    """
    if not issubclass(type_of(text), str):  # by the type alone: `isinstance` would also believe an object's own `__class__`
        raise InvalidOutputError.of(tool, "text", "text", f"an object of type {type_of(text).__name__}")
    plain = str.__str__(text)
    mended = mend_surrogates(plain)
    return add_blocks(tool, _written(mended or '""', mended=mended is not plain), blocks)


def add_blocks(tool: str, written: Written, blocks: Sequence[object]) -> Written:
    """Give `written` with `blocks` after its own; empty text blocks, which providers refuse, are dropped.

    Raises:
        InvalidOutputError: `blocks` is no list, or one of them is no content block.
    """
    given = _listed(tool, blocks)
    if not given:
        return written
    checked = tuple(_checked(tool, index, block) for index, block in enumerate(given))
    kept = tuple(block for block in checked if block != TextBlock(""))
    mended = any(new is not old for new, old in zip(checked, given, strict=True))
    notes = (*written.notes, SURROGATES_REPLACED) if mended and SURROGATES_REPLACED not in written.notes else written.notes
    return written._replace(blocks=written.blocks + kept, notes=notes)


def _listed(tool: str, blocks: Sequence[object]) -> list[object]:
    try:
        return list(blocks)
    except Exception as error:  # a list of the tool's own class may do anything
        found = f"an object of type {type(blocks).__name__}"
        raise InvalidOutputError.of(tool, "blocks", "a list of content blocks", found) from error


def _checked(tool: str, index: int, block: object) -> ContentBlock:
    try:
        return checked_block(block)
    except Unwritable as refusal:
        raise InvalidOutputError.of(tool, f"blocks[{index}]", refusal.expected, refusal.got) from refusal


def _written(text: str, blocks: tuple[ContentBlock, ...] = (), *, mended: bool = False) -> Written:
    size_bytes = len(text) if text.isascii() else len(text.encode())
    return Written(text, size_bytes, blocks, (SURROGATES_REPLACED,) if mended else ())


def _is_plain(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Tell whether `to_json` writes all of `value` in its fixed form, and hides nothing that the text would not show."""
    kind = type_of(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _PLAIN and (depth <= 1 or not _is_plain(item, depth - 1))):
                return False
        return True
    if kind is list or kind is tuple:
        for item in value:
            if type(item) not in _PLAIN and (depth <= 1 or not _is_plain(item, depth - 1)):
                return False
        return True
    return kind in _PLAIN or _is_plain_model(value)


def _is_plain_model(value: object) -> bool:
    serializer = serializer_of(type(value))
    return serializer is not None and not hides_something(serializer.to_python(value, by_alias=True, warnings=False))


def _is_settled(text: str) -> bool:
    # One character is found fifty times as fast as a word, and most texts need no more.
    return ("N" not in text or "NaN" not in text) and ("I" not in text or "Infinity" not in text) and '"data:' not in text


def _has_long_digits(data: bytes) -> bool:
    """Tell whether digits fill one of the pieces of half the greatest length: every integer that is too long fills one."""
    return any(data[start : start + _HALF_DIGITS].isdigit() for start in range(0, len(data), _HALF_DIGITS))


def _write_carefully(tool: str, value: object) -> Written:
    try:
        plain = plain_form(value)
    except Unwritable as refusal:
        raise InvalidOutputError.of(tool, refusal.path, refusal.expected, refusal.got, refusal.hint) from refusal
    try:
        return _written(to_json(plain.data).decode(), plain.blocks, mended=plain.mended)
    except PydanticSerializationError:  # lone surrogates: all that plain data can have against UTF-8
        text = json.dumps(plain.data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    mended = mend_surrogates(text)
    _refuse_twin_keys(tool, mended)
    return _written(mended, plain.blocks, mended=True)


def _refuse_twin_keys(tool: str, text: str) -> None:
    def check(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            raise InvalidOutputError.of(tool, "", "keys that differ as text", "keys that differ in lone surrogates only")

    json.loads(text, object_pairs_hook=check)
