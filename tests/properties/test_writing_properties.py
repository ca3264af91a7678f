"""What holds for every value: supported ones are written in their form, all others end in one clear error."""

import json
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from callgate.errors import InvalidOutputError, OutputTooLargeError
from callgate.tools.limiting import cut_text, limit_output
from callgate.tools.spill import MemorySpill, page_of
from callgate.tools.writing import Written, write_output, write_text
from callgate.values import BinaryBlock, ImageBlock, TextBlock, ToolAnswer


class Suit(Enum):
    HEARTS = "hearts"
    PAIR = (1, "a")


class Pair(NamedTuple):
    left: object
    right: object


@dataclass
class Box:
    inner: object


class Crate(BaseModel):
    inner: object


# Every strategy draws a value together with the plain form that its text must be read back as.

text = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda value: not value.startswith("data:"))
same = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text).map(
    lambda v: (v, v)
)
native = st.one_of(st.datetimes(timezones=st.none()), st.dates(), st.times(), st.timedeltas(), st.uuids())
scalars = st.one_of(
    same,
    native.map(lambda value: (value, to_jsonable_python(value))),
    st.dates().map(lambda value: (value, value.isoformat())),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda value: (value, str(value))),
    text.filter(lambda value: "\0" not in value).map(PurePosixPath).map(lambda value: (value, str(value))),
    st.just((Suit.HEARTS, "hearts")),
    st.just((Suit.PAIR, [1, "a"])),
    st.sets(st.integers()).map(lambda value: (value, sorted(value))),
    st.frozensets(text).map(lambda value: (value, sorted(value))),
)


def lists(items):
    def build(pairs, kind):
        return kind([value for value, _ in pairs]), [plain for _, plain in pairs]

    return st.builds(build, st.lists(items, max_size=4), st.sampled_from([list, tuple, deque]))


def objects(items):
    def build(pairs, kind):
        return kind({key: value for key, (value, _) in pairs.items()}), {key: plain for key, (_, plain) in pairs.items()}

    return st.builds(build, st.dictionaries(text, items, max_size=4), st.sampled_from([dict, OrderedDict, MappingProxyType]))


def wrapped(items):
    return st.one_of(
        lists(items),
        objects(items),
        items.map(lambda pair: (Box(pair[0]), {"inner": pair[1]})),
        items.map(lambda pair: (Crate(inner=pair[0]), {"inner": pair[1]})),
        st.tuples(items, items).map(lambda pairs: (Pair(pairs[0][0], pairs[1][0]), [pairs[0][1], pairs[1][1]])),
        st.dictionaries(st.integers(), items, max_size=3).map(
            lambda pairs: (
                {key: value for key, (value, _) in pairs.items()},
                {str(key): plain for key, (_, plain) in pairs.items()},
            )
        ),
    )


supported = st.recursive(scalars, wrapped, max_leaves=12)


@given(supported)
def test_every_supported_value_is_read_back_as_its_plain_form(pair):
    value, plain = pair
    written = write_output("t", value)
    assert json.loads(written.text) == plain
    assert (written.size_bytes, written.blocks, written.notes) == (len(written.text.encode()), (), ())


def raising(*_args, **_keywords):
    raise RuntimeError


class NoClass:
    __class__ = property(raising)


class NoHash:
    __hash__ = None
    __eq__ = __str__ = __repr__ = __iter__ = __len__ = __getattr__ = raising


class Endless(Sequence):
    __getitem__ = raising

    def __len__(self):
        return 1

    def __iter__(self):
        yield Endless()


class UnreadyMeta(type):
    __hash__ = __eq__ = raising
    __name__ = __mro__ = property(raising)


class OfUnreadyMeta(metaclass=UnreadyMeta):
    pass


class BrokenMapping(Mapping):
    __len__ = __iter__ = __getitem__ = items = raising


class BrokenSet(AbstractSet):
    __len__ = __iter__ = __contains__ = raising


def loop():
    ring: list[object] = [{}]
    ring[0] = {"ring": ring, "set": {1}}
    return ring


def deep():
    value: object = 1
    for _ in range(5000):
        value = {"a": [value]}
    return value


MAKERS = (
    NoClass,
    NoHash,
    Endless,
    OfUnreadyMeta,
    BrokenMapping,
    BrokenSet,
    loop,
    deep,
    object,
    lambda: OfUnreadyMeta,
    lambda: NoHash,
    lambda: 10**5000,
    lambda: float("nan"),
    lambda: type("data:", (str,), {"__str__": raising, "encode": raising})("data:x\ud800"),
    lambda: type("D", (dict,), {"items": raising, "__iter__": raising, "keys": raising})(a=1),
    lambda: type("L", (list,), {"__iter__": raising, "__len__": raising})([1]),
    lambda: type("I", (int,), {"__int__": raising})(3),
    lambda: type("F", (float,), {"__float__": raising, "__repr__": raising})(3),
    lambda: (i for i in ()),
    lambda: len,
    lambda: Box,
    lambda: Crate.model_construct(),
    lambda: object.__new__(Box),
    lambda: object.__new__(ImageBlock),
    lambda: object.__new__(Crate),
    lambda: ToolAnswer(1),
    lambda: memoryview(b"ab"),
    lambda: TextBlock("\ud800"),
    lambda: ImageBlock(1, 2),
    lambda: BinaryBlock(b""),
    lambda: {NoClass(): 1},
    lambda: {(1, b"x"): 1},
    lambda: {1: 1, "1": 1},
    lambda: dict.fromkeys(["\ud800", "\udfff"]),
    lambda: "data:image/png;base64,AA",
    lambda: ValueError("x"),
    lambda: Suit,
    lambda: BaseModel,
    lambda: 1j,
    lambda: {1, "a", None, (1,)},
    lambda: frozenset({frozenset({1})}),
)

# Drawn as functions that make the value in the test: hypothesis looks at what it draws, which hostile ones do not bear.
any_key = st.one_of(
    st.text(), st.integers(), st.floats(), st.binary(), st.none(), st.dates(), st.tuples(st.text(), st.integers())
)
harmless = st.one_of(st.text(), st.binary(), st.floats(), st.integers(), st.decimals(), st.complex_numbers(), st.dates())
anything = st.recursive(
    st.integers(min_value=0, max_value=len(MAKERS) - 1).map(lambda number: MAKERS[number])
    | harmless.map(lambda value: lambda: value),
    lambda items: st.one_of(
        st.lists(items, max_size=4).map(lambda makers: lambda: [make() for make in makers]),
        st.lists(items, max_size=3).map(lambda makers: lambda: deque(make() for make in makers)),
        st.dictionaries(any_key, items, max_size=4).map(lambda makers: lambda: {key: make() for key, make in makers.items()}),
        st.tuples(items, items).map(lambda makers: lambda: tuple(make() for make in makers)),
        items.map(lambda make: lambda: Box(make())),
        items.map(lambda make: lambda: Crate(inner=make())),
    ),
    max_leaves=10,
)


def written_or_refused(value):
    try:
        return write_output("t", value)
    except InvalidOutputError as error:
        error.user_message.encode()
        return None


@given(anything)
def test_any_object_at_all_ends_in_a_text_or_an_invalid_output_error(make):
    written = written_or_refused(make())
    if written is not None:
        assert written.text
        assert written.size_bytes == len(written.text.encode())
        json.loads(written.text, parse_constant=raising)


@given(anything, st.integers(min_value=1, max_value=400), st.sampled_from(["truncate", "spill", "error"]))
def test_a_cap_holds_for_whatever_is_written(make, limit_bytes, on_oversize):
    written = written_or_refused(make())
    if written is None:
        return
    try:
        limited = limit_output("t", written, limit_bytes, on_oversize, lambda whole: MemorySpill().put(whole, None))
    except OutputTooLargeError:
        assert on_oversize == "error"
        return
    texts = [limited.text, *(block.text for block in limited.blocks if isinstance(block, TextBlock))]
    assert sum(len(text.encode()) for text in texts) <= limit_bytes
    assert limited.text


any_text = st.text(st.sampled_from('a\n"é€😀\ud800\udc00')) | st.text()


@given(any_text)
def test_any_text_is_written_as_utf_8_with_no_character_lost_but_lone_surrogates(value):
    written = write_text("t", value)
    assert written.text.encode()
    expected = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert written.text == (expected or '""')
    assert (
        write_output("t", value).text == json.dumps(expected, ensure_ascii=False) or value.startswith("data:") or "\x7f" in value
    )
    assert json.loads(write_output("t", value).text) == expected


long_text = st.text(st.sampled_from('ab\n"é€😀'), max_size=300).map(lambda piece: piece * 3)


@given(long_text, st.integers(min_value=1, max_value=500))
def test_a_cut_text_is_head_marker_and_tail_of_the_text_within_its_limit(value, limit_bytes):
    cut = cut_text(value, limit_bytes)
    assert len(cut.encode()) <= limit_bytes
    assert cut or not value
    if cut != value and limit_bytes > 200:
        head, _, rest = cut.partition("\n[... cut: the middle of ")
        size, _, tail = rest.partition(" bytes is left out ...]\n")
        assert value.startswith(head)
        assert value.endswith(tail)
        assert (int(size), head != "", tail != "") == (len(value.encode()), True, True)


@given(long_text, st.integers(min_value=1, max_value=60))
def test_pages_put_together_are_the_text(value, limit):
    data, pieces, offset = value.encode(), [], 0
    while offset is not None:
        page = page_of(data, offset, limit)
        assert page.offset == offset
        assert len(page.text.encode()) <= max(limit, 4)
        pieces.append(page.text)
        offset = page.next_offset
    assert "".join(pieces) == value


@given(st.integers() | st.text(), st.integers(min_value=0, max_value=30))
def test_what_fits_is_given_back_as_it_is(value, more):
    written = write_output("t", value)
    assert limit_output("t", written, written.size_bytes + more, "truncate") is written
    assert isinstance(written, Written)


@given(supported)
def test_the_quick_way_and_the_careful_way_write_alike(pair):
    value, plain = pair
    careful = write_output("t", [value, BinaryBlock(b"makes it careful")])
    assert json.loads(careful.text)[0] == plain
    assert careful.text.startswith(f"[{write_output('t', value).text},")
