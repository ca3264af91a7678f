"""Turn any value into plain JSON data: one fixed form for each type, a content block for bytes, a path for what has none.

Plain data are exact `dict`, `list`, `str`, `int`, `float` (finite), `bool` and None, with `str` keys. The forms:

| value | form |
|---|---|
| datetime, date, time, timedelta | ISO 8601 |
| UUID, Decimal, path, IP address, URL, secret | text (a secret stays masked) |
| Enum | its value |
| pydantic model, pydantic dataclass | as its own serializer says, by alias |
| dataclass, Mapping | object |
| list, tuple, NamedTuple, deque, range and other sequences, dict views | list |
| set | list, sorted |
| bytes, images as `data:` URL, content blocks | content block, and a note with its number, MIME type and size |

A key takes the text form of its value, or the JSON text of it where the form is no text; bytes as key are base64. What
belongs to a value's class (iteration, properties, serializers) is the tool's own code: whatever it raises is a refusal.
"""

import base64
import binascii
import dataclasses
import ipaddress
import json
import math
import re
from collections import UserString
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from types import CoroutineType, GeneratorType, NoneType
from typing import Any, Final, NoReturn
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import MultiHostUrl, PydanticSerializationError, SchemaSerializer, Url, to_jsonable_python

from callgate.values import BinaryBlock, ContentBlock, ImageBlock, TextBlock, ToolAnswer, ToolReply, ToolResult

__all__ = (
    "MAX_DEPTH",
    "MAX_DIGITS",
    "PlainForm",
    "Unwritable",
    "checked_block",
    "hides_something",
    "mend_surrogates",
    "plain_form",
    "serializer_of",
    "type_of",
)

MAX_DEPTH: Final = 128
MAX_DIGITS: Final = 4300
"""The most digits of an integer: what Python itself reads back (`sys.int_info.default_max_str_digits`)."""

_TOO_BIG: Final = 10**MAX_DIGITS
_INT64_MIN, _INT64_MAX = -(1 << 63), 1 << 63
_MAX_PATH: Final = 200
_MAX_STEP: Final = 40
_EXPECTED: Final = "data that can be written as JSON"
_HINT: Final = "return text, numbers, lists, dicts, dataclasses or pydantic models"
_DATA_URL: Final = re.compile(r"data:((?:image|audio|video|application)/[a-z0-9.+-]+)(?:;[^,;]*)*;base64,", re.IGNORECASE)
_MIME_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+(?: ?;[ -~]*)?", re.ASCII)
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
type_of: Callable[[object], type] = type
"""The type of a value of any type: `type` itself, which a type checker takes for unknown where the value is `Any`."""

# Read from the type itself: a metaclass may define a `__name__` that raises or lies.
_type_name: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
# And contents from the built-in type: a subclass may have an `items` or `__iter__` that is broken.
_OWN_ITEMS: Final[tuple[tuple[type, Callable[[Any], Iterator[object]]], ...]] = tuple(
    (kind, kind.__dict__["__iter__"]) for kind in (list, tuple, set, frozenset)
)
_items_of_dict: Final[Callable[[Any], Iterable[tuple[object, object]]]] = dict.__dict__["items"]


class Unwritable(Exception):
    """Say that a value has no JSON form; each container on the way up adds its `step`, so that `path` names the place."""

    def __init__(self, got: str, *, expected: str = _EXPECTED, hint: str = "") -> None:
        super().__init__(got)
        self.got = got
        self.expected = expected
        self.hint = hint
        self.steps: list[str | int] = []

    @property
    def path(self) -> str:
        """The place as in code, `lines[2].price`, cut from the left when it is very long."""
        path = "".join(map(_step_text, reversed(self.steps))).removeprefix(".")
        return path if len(path) <= _MAX_PATH else f"...{path[-_MAX_PATH:]}"


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if step.isidentifier() and step.isascii() and len(step) <= _MAX_STEP:
        return f".{step}"
    return f"[{json.dumps(step if len(step) <= _MAX_STEP else step[:_MAX_STEP] + '...')}]"


@dataclass(frozen=True, slots=True)
class PlainForm:
    """Hold the plain `data` of a value, its content blocks in order, and whether a text block had lone surrogates."""

    data: object
    blocks: tuple[ContentBlock, ...]
    mended: bool


@dataclass(slots=True)
class _Walk:
    blocks: list[ContentBlock] = field(default_factory=list[ContentBlock])
    mended: bool = False
    open: set[int] = field(default_factory=set[int])

    def enter(self, container: object) -> None:
        if id(container) in self.open:
            raise Unwritable("a value that contains itself")
        if len(self.open) >= MAX_DEPTH:
            raise Unwritable("deeper nesting", expected=f"at most {MAX_DEPTH} levels of nesting")
        self.open.add(id(container))

    def leave(self, container: object) -> None:
        self.open.discard(id(container))


_Form = Callable[[_Walk, Any], object]


def plain_form(value: object) -> PlainForm:
    """Give the plain form of `value`, or raise `Unwritable`; nothing else that derives from Exception leaves it."""
    walk = _Walk()
    data = _guarded(walk, value, None)
    return PlainForm(data, tuple(walk.blocks), walk.mended)


def mend_surrogates(text: str) -> str:
    """Join surrogate pairs and replace each lone surrogate with U+FFFD; text without any is given back as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def serializer_of(kind: type) -> SchemaSerializer | None:
    """Give the serializer of a pydantic model or pydantic dataclass, None for any other class."""
    serializer: Any = getattr(kind, "__pydantic_serializer__", None)
    # A model whose build was deferred has a stand-in there, which builds the serializer when it is used.
    return serializer if type(serializer) is SchemaSerializer or issubclass(kind, BaseModel) else None


def hides_something(dumped: Any) -> bool:
    """Tell whether pydantic's own JSON would hide a part of `dumped`, a model's dump in Python mode.

    It writes bytes as text, NaN as null, sets in any order and equal keys twice; other containers may hold any of these.
    """
    kind = type_of(dumped)
    if kind in _SHOWN:
        return False
    if issubclass(kind, dict):
        return any(type(key) is not str or hides_something(item) for key, item in dumped.items())
    if issubclass(kind, (list, tuple)):
        return any(map(hides_something, dumped))
    if issubclass(kind, (float, Decimal)):
        return not math.isfinite(dumped)
    return issubclass(kind, _HIDDEN) and not issubclass(kind, str)


def checked_block(block: object) -> ContentBlock:
    """Give the content block with its text mended, or raise `Unwritable` for what is none or holds other than it says."""
    kind: type = type(block)  # by the type alone, and exactly it: nothing that is read below can be an author's code
    if isinstance(block, TextBlock) and kind is TextBlock and type(block.text) is str:
        mended = mend_surrogates(block.text)
        return block if mended is block.text else TextBlock(mended)
    if isinstance(block, (ImageBlock, BinaryBlock)) and kind in _BYTES_BLOCKS and type(block.data) is bytes:
        if type(block.mime_type) is not str or _MIME_TYPE.fullmatch(block.mime_type) is None:
            raise Unwritable("another text", expected="a MIME type such as image/png")
        return block
    raise Unwritable(_described(kind), expected="a content block that holds text, or bytes with a MIME type")


def _guarded(walk: _Walk, value: object, step: str | int | None) -> object:
    kind: type = type(value)
    try:
        return _form_of(kind)(walk, value)
    except Unwritable as refusal:
        _add_step(refusal, step)
        raise
    except RecursionError as error:
        raise _add_step(Unwritable("deeper nesting", expected="less nesting"), step) from error
    except Exception as error:  # what a value's class does when it is read is the tool's own code
        got = f"{_described(kind)} that raised {_type_name(type(error))[:_MAX_STEP]} while it was read"
        raise _add_step(Unwritable(got), step) from error


def _is_settled(value: Any) -> bool:
    # Most values by far: they are what they are, and their full form would say so at six times the price.
    kind = type_of(value)
    if kind is str:
        return bool(value[:5] != "data:")
    if kind is int:
        return bool(_INT64_MIN < value < _INT64_MAX)
    return kind is bool or kind is NoneType


def _add_step(refusal: Unwritable, step: str | int | None) -> Unwritable:
    if step is not None:
        refusal.steps.append(step)
    return refusal


def _described(kind: type) -> str:
    return f"an object of type {_type_name(kind)[:_MAX_STEP]}"


# Forms of scalars. Subclasses are read through the built-in type, so that an override cannot change or break them.


def _as_it_is(_walk: _Walk, value: object) -> object:
    return value


def _text(walk: _Walk, value: str) -> object:
    text = str.__str__(value)
    block = _data_url_block(text) if text.startswith("data:") else None
    return text if block is None else _noted(walk, block)


def _integer(_walk: _Walk, value: int) -> int:
    number = int.__int__(value)
    if -_TOO_BIG < number < _TOO_BIG:
        return number
    raise Unwritable("a longer one", expected=f"an integer of at most {MAX_DIGITS} digits")


def _float(_walk: _Walk, value: float) -> float:
    number = float.__float__(value)
    if math.isfinite(number):
        return number
    raise Unwritable("NaN or infinity", expected="a finite number")


def _decimal(_walk: _Walk, value: Decimal) -> str:
    if Decimal.is_finite(value):
        return Decimal.__str__(value)
    raise Unwritable("NaN or infinity", expected="a finite number")


def _native(_walk: _Walk, value: object) -> str:
    return str.__str__(to_jsonable_python(value))


def _by_str(_walk: _Walk, value: object) -> str:
    return str.__str__(str(value))


def _member(walk: _Walk, value: Enum) -> object:
    inner = value._value_  # `value` may be a property of the enum's author
    return _form_of(type_of(inner))(walk, inner)


def _refused_answer(_walk: _Walk, value: object) -> NoReturn:
    # Its artifacts are promised to reach no model, so it is not written as the dataclass that it is.
    raise Unwritable(f"a {_type_name(type(value))} inside the output", hint="give its value, or return it as the whole answer")


def _class(_walk: _Walk, value: type) -> NoReturn:
    raise Unwritable(f"the class {_type_name(value)[:_MAX_STEP]} itself", hint="return an instance, not its class")


def _generator(_walk: _Walk, _value: object) -> NoReturn:
    raise Unwritable("a generator", hint="return a list of its items")


def _coroutine(_walk: _Walk, value: Coroutine[object, object, object]) -> NoReturn:
    value.close()  # nobody will await it, and Python would say so at some later place that has nothing to do with it
    raise Unwritable("a coroutine that was not awaited", hint="await it in the tool")


def _unknown(_walk: _Walk, value: object) -> NoReturn:
    raise Unwritable(_described(type(value)), hint=_HINT)


# Forms of bytes and content blocks.


def _bytes(walk: _Walk, value: bytes | bytearray | memoryview) -> object:
    data = memoryview(value).tobytes()
    mime_type = _sniffed(data)
    if not data:
        return {"mime_type": mime_type, "bytes": 0}
    return _noted(walk, ImageBlock(data, mime_type) if mime_type in _IMAGE_TYPES else BinaryBlock(data, mime_type))


def _sniffed(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if data.startswith(b"%PDF-") else "application/octet-stream"


def _data_url_block(text: str) -> ContentBlock | None:
    head = _DATA_URL.match(text)
    if head is None:
        return None
    body = "".join(text[head.end() :].split())
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    declared, sniffed = head[1].lower(), _sniffed(data)
    if not data:
        return None
    if sniffed in _IMAGE_TYPES:  # providers refuse an image whose bytes are of another type than it says
        return ImageBlock(data, sniffed)
    return ImageBlock(data, declared) if declared in _IMAGE_TYPES else BinaryBlock(data, declared)


def _block(walk: _Walk, value: ContentBlock) -> object:
    block = checked_block(value)
    walk.mended = walk.mended or block is not value
    if isinstance(block, TextBlock) and not block.text:
        return ""  # an empty text block is refused by providers
    return _noted(walk, block)


def _noted(walk: _Walk, block: ContentBlock) -> object:
    walk.blocks.append(block)
    if isinstance(block, TextBlock):
        return {"content_block": len(walk.blocks), "mime_type": "text/plain", "bytes": len(block.text.encode())}
    return {"content_block": len(walk.blocks), "mime_type": block.mime_type, "bytes": len(block.data)}


# Forms of containers.


def _list(walk: _Walk, value: Iterable[object]) -> list[object]:
    walk.enter(value)
    plain = [item if _is_settled(item) else _guarded(walk, item, index) for index, item in enumerate(_raw_items(value))]
    walk.leave(value)
    return plain


def _raw_items(value: Iterable[object]) -> Iterator[object]:
    own = next((items for kind, items in _OWN_ITEMS if issubclass(type(value), kind)), None)
    return iter(value) if own is None else own(value)


def _set(walk: _Walk, value: Iterable[object]) -> list[object]:
    plain: list[Any] = _list(walk, value)
    try:
        return sorted(plain)
    except TypeError:  # of several types: their JSON texts give an order that is the same in every process
        return sorted(plain, key=_compact_json)


def _dict(walk: _Walk, value: dict[object, object]) -> dict[str, object]:
    return _object(walk, value, _items_of_dict(value))


def _mapping(walk: _Walk, value: Mapping[object, object]) -> dict[str, object]:
    return _object(walk, value, value.items())


def _record(walk: _Walk, value: Any) -> dict[str, object]:
    return _object(walk, value, ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value)))


def _object(walk: _Walk, owner: object, items: Iterable[tuple[object, object]]) -> dict[str, object]:
    walk.enter(owner)
    plain: dict[str, object] = {}
    for key, item in items:
        name = key if type(key) is str else _key_text(key)
        if name in plain:
            raise _add_step(Unwritable("two keys that are written alike", expected="keys that differ as text"), name)
        plain[name] = item if _is_settled(item) else _guarded(walk, item, name)
    walk.leave(owner)
    return plain


def _key_text(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    walk = _Walk()
    try:
        plain = _guarded(walk, key, None)
    except Unwritable as refusal:
        raise Unwritable(f"a key that is {refusal.got}", expected="keys that can be written as text") from refusal
    if walk.blocks:
        raise Unwritable("a key that holds bytes", expected="keys that can be written as text")
    return plain if isinstance(plain, str) else _compact_json(plain)


def _compact_json(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _model(walk: _Walk, value: object) -> object:
    walk.enter(value)
    serializer = serializer_of(type(value))
    assert serializer is not None
    dumped = serializer.to_python(value, by_alias=True, warnings=False)
    if not hides_something(dumped):
        # Its own JSON mode also runs the serializers that are meant for JSON alone, but it knows fewer types than we do.
        with suppress(PydanticSerializationError):
            dumped = serializer.to_python(value, mode="json", by_alias=True, warnings=False)
    plain = _form_of(type_of(dumped))(walk, dumped)
    walk.leave(value)
    return plain


_BYTES_BLOCKS: Final = frozenset({ImageBlock, BinaryBlock})
_BYTES: Final = (bytes, bytearray, memoryview)
_SHOWN: Final = frozenset({str, int, bool, NoneType})
_HIDDEN: Final = (*_BYTES, AbstractSet, Mapping, Sequence, TextBlock, ImageBlock, BinaryBlock)

_FORMS: Final[dict[type, _Form]] = {
    str: _text,
    int: _integer,
    float: _float,
    bool: _as_it_is,
    NoneType: _as_it_is,
    dict: _dict,
    list: _list,
    tuple: _list,
    set: _set,
    bytes: _bytes,
    datetime: _native,
    date: _native,
    UUID: _native,
    Decimal: _decimal,
}

# The first family that a class belongs to decides.
_FAMILIES: Final[tuple[tuple[type | tuple[type, ...], _Form], ...]] = (
    ((TextBlock, ImageBlock, BinaryBlock), _block),
    ((ToolAnswer, ToolResult, ToolReply), _refused_answer),
    (Enum, _member),
    (str, _text),
    (int, _integer),
    (float, _float),
    (dict, _dict),
    ((list, tuple), _list),
    ((set, frozenset), _set),
    (_BYTES, _bytes),
    ((datetime, date, time, timedelta, UUID, Url, MultiHostUrl), _native),
    (Decimal, _decimal),
    ((PurePath, UserString), _by_str),
    ((ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv4Interface), _by_str),
    ((ipaddress.IPv6Address, ipaddress.IPv6Network, ipaddress.IPv6Interface), _by_str),
    (type, _class),
    (GeneratorType, _generator),
    (CoroutineType, _coroutine),
)
_ABSTRACT_FAMILIES: Final[tuple[tuple[type | tuple[type, ...], _Form], ...]] = (
    (Mapping, _mapping),
    (AbstractSet, _set),
    ((Sequence, ValuesView), _list),
)


def _form_of(kind: type) -> _Form:
    return _FORMS.get(kind) or _form_of_class(kind)


@lru_cache(maxsize=512)
def _form_of_class(kind: type) -> _Form:
    return _family_of(kind, _FAMILIES) or _form_of_structure(kind)


def _family_of(kind: type, families: Iterable[tuple[type | tuple[type, ...], _Form]]) -> _Form | None:
    # By the type alone: `isinstance` would also believe an object's own `__class__`.
    return next((form for family, form in families if issubclass(kind, family)), None)


def _is_secret(kind: type) -> bool:
    # By name: to import the two classes takes 18 ms, and a value of theirs exists only where they are imported already.
    names = {(base.__module__, base.__name__) for base in kind.__mro__}
    return not names.isdisjoint({("pydantic.types", "SecretStr"), ("pydantic.types", "SecretBytes")})


def _form_of_structure(kind: type) -> _Form:
    if _is_secret(kind):
        return _by_str
    if serializer_of(kind) is not None:
        return _model
    return _record if hasattr(kind, "__dataclass_fields__") else _family_of(kind, _ABSTRACT_FAMILIES) or _unknown
