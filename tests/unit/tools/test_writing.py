"""The value -> text step: cases b12, d1, d2, d4, d5, d6, d10, d14, d17, and what no value may do."""

import base64
import json
import math
from collections import ChainMap, Counter, OrderedDict, UserString, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import ip_address, ip_network
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import Annotated, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PlainSerializer, RootModel, SecretStr, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from callgate.errors import InvalidOutputError
from callgate.tools.writing import SURROGATES_REPLACED, Written, add_blocks, write_output, write_text
from callgate.values import BinaryBlock, ImageBlock, TextBlock, ToolAnswer

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
GIF = b"GIF89a" + bytes(20)
UUID_1 = UUID("12345678-1234-5678-1234-567812345678")


def text_of(value):
    return write_output("t", value).text


def problem_of(value):
    with pytest.raises(InvalidOutputError) as caught:
        write_output("shop.find", value)
    assert caught.value.tool == "shop.find"
    caught.value.user_message.encode()
    (problem,) = caught.value.problems
    return problem


class Colour(Enum):
    RED = "red"
    POINT = (1, 2)


class Level(IntEnum):
    HIGH = 3


class Mood(StrEnum):
    GOOD = "good"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Order:
    id: int
    tags: set[str] = field(default_factory=set)
    inner: object = None


@dataclass(frozen=True)
class Coordinates:
    x: int
    y: int


class Customer(BaseModel):
    name: str
    born: date | None = None


class Vip(Customer):
    level: int = 1


# b12


def test_b12_a_lone_surrogate_becomes_u_fffd_and_is_noted():
    assert write_output("t", "bad \ud835 text") == Written('"bad \ufffd text"', 14, (), (SURROGATES_REPLACED,))


def test_b12_lone_surrogates_are_replaced_in_nested_values_and_keys():
    written = write_output("t", {"\udc00k": ["\ud800", {"a": ("x\udfff",)}]})
    assert json.loads(written.text) == {"\ufffdk": ["\ufffd", {"a": ["x\ufffd"]}]}
    assert written.size_bytes == len(written.text.encode())
    assert written.notes == (SURROGATES_REPLACED,)


def test_b12_a_surrogate_pair_is_joined_to_its_character():
    assert json.loads(text_of("\ud83d\ude00")) == "😀"


def test_b12_an_explicit_text_and_text_blocks_are_mended_too():
    written = write_text("t", "a\ud800", [TextBlock("b\udc00"), TextBlock("c")])
    assert (written.text, written.blocks) == ("a\ufffd", (TextBlock("b\ufffd"), TextBlock("c")))
    assert written.notes == (SURROGATES_REPLACED,)
    assert write_output("t", TextBlock("b\udc00")).notes == (SURROGATES_REPLACED,)


def test_b12_a_path_that_is_no_utf_8_is_written_with_u_fffd():
    assert text_of({"p": Path("a\udcff")}) == '{"p":"a\ufffd"}'


def test_b12_keys_that_become_equal_by_the_replacement_are_refused():
    assert "keys" in problem_of(dict.fromkeys(["\ud800", "\ud801"])).expected


# d1


def test_d1_a_class_returned_in_place_of_a_value_is_refused_with_its_name():
    problem = problem_of(dict)
    assert (problem.path, problem.got) == ("", "the class dict itself")


def test_d1_the_place_and_the_type_of_an_unserialisable_value_are_named():
    problem = problem_of({"orders": [{"id": 1}, {"id": object()}]})
    assert (problem.path, problem.got) == ("orders[1].id", "an object of type object")
    assert "dataclasses" in problem.hint


@pytest.mark.parametrize(
    "value", [lambda: 1, print, math, ValueError("secret"), 1j, iter([1]), (i for i in [1]), NotImplemented, ...]
)
def test_d1_what_has_no_json_form_is_refused_and_never_written_as_its_repr(value):
    problem = problem_of([value])
    assert problem.path == "[0]"
    assert "secret" not in str(problem)


def test_d1_a_path_writes_odd_keys_quoted_and_cuts_long_ones():
    assert problem_of({"a b": {"x" * 99: object()}}).path == f'["a b"]["{"x" * 40}..."]'
    assert problem_of({"\ud800": object()}).path == '["\\ud800"]'


def test_d1_a_path_of_any_depth_stays_short():
    value = object()
    for _ in range(100):
        value = {"nested": value}
    assert len(problem_of(value).path) < 220


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")])
def test_d1_nan_and_infinity_are_refused_with_their_path(value):
    assert problem_of(value).got == "NaN or infinity"
    assert problem_of({"a": [1.5, value]}).path == "a[1]"
    assert problem_of({"o": object, "a": value}).path == "o"


def test_d1_words_that_look_like_nan_are_text():
    assert text_of(["NaN", "Infinity", "-Infinity"]) == '["NaN","Infinity","-Infinity"]'


def test_d1_a_value_that_contains_itself_is_refused_with_the_path():
    loop: dict[str, object] = {"ok": 1}
    loop["items"] = [{"parent": loop}]
    assert problem_of(loop).got == "a value that contains itself"
    assert problem_of(loop).path == "items[0].parent"


def test_d1_one_value_in_two_places_is_no_cycle():
    shared = {"a": {1}}
    assert text_of([shared, shared, {"b": shared}]) == '[{"a":[1]},{"a":[1]},{"b":{"a":[1]}}]'


@pytest.mark.parametrize("leaf", [1, {2}])
def test_d1_nesting_is_bounded(leaf):
    def nested(levels):
        value = leaf
        for _ in range(levels):
            value = [value]
        return value

    assert text_of(nested(120)).startswith("[[[")
    assert "128" in problem_of(nested(129)).expected
    assert "128" in problem_of(nested(100_000)).expected


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"a": {"n": value, "s": {1}}}])
def test_d1_an_integer_that_nobody_can_read_back_is_refused(wrap):
    assert json.loads(text_of(wrap(10**4299))) is not None
    assert "4300 digits" in problem_of(wrap(10**4300)).expected
    assert "4300 digits" in problem_of(wrap(-(10**9000))).expected


def test_d1_long_digits_in_text_are_no_integer():
    assert json.loads(text_of(["7" * 10_000])) == ["7" * 10_000]


# d2

D2 = {
    datetime(2025, 1, 1): "x",  # noqa: DTZ001  # as in the case
    "d": Decimal("1.10"),
    "u": UUID_1,
    "s": {1},
    "p": Path("a"),
}


def test_d2_the_common_types_have_their_fixed_form_as_value_and_as_key():
    assert json.loads(text_of(D2)) == {"2025-01-01T00:00:00": "x", "d": "1.10", "u": str(UUID_1), "s": [1], "p": "a"}


FORMS = [
    (datetime(2025, 1, 2, 3, 4, 5, 6), "2025-01-02T03:04:05.000006"),  # noqa: DTZ001  # also without a zone
    (datetime(2025, 1, 2, tzinfo=UTC), "2025-01-02T00:00:00Z"),
    (date(2025, 1, 2), "2025-01-02"),
    (time(1, 2, 3), "01:02:03"),
    (timedelta(days=1, seconds=3), "P1DT3S"),
    (UUID_1, str(UUID_1)),
    (Decimal("1.10"), "1.10"),
    (Decimal("1E+400"), "1E+400"),
    (Path("/a/é"), "/a/é"),
    (PureWindowsPath("a/b"), "a\\b"),
    (ip_address("10.0.0.1"), "10.0.0.1"),
    (ip_network("10.0.0.0/8"), "10.0.0.0/8"),
    (Colour.RED, "red"),
    (Mood.GOOD, "good"),
    (UserString("u"), "u"),
    (SecretStr("hunter2"), "**********"),
    (HttpUrl("http://a.example/"), "http://a.example/"),
]


@pytest.mark.parametrize(("value", "form"), FORMS, ids=[repr(form) for _, form in FORMS])
def test_d2_a_type_has_one_text_form_alone_nested_and_as_a_key(value, form):
    assert json.loads(text_of(value)) == form
    assert json.loads(text_of({"a": [value], "s": {1}})) == {"a": [form], "s": [1]}
    assert json.loads(text_of({value: 1})) == {form: 1}


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Level.HIGH, 3),
        (Colour.POINT, [1, 2]),
        (Point(1, 2), [1, 2]),
        (Order(1, {"b", "a"}, Point(1, 2)), {"id": 1, "tags": ["a", "b"], "inner": [1, 2]}),
        (Customer(name="Ann", born=date(2000, 1, 1)), {"name": "Ann", "born": "2000-01-01"}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (ChainMap({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        (deque([1, 2]), [1, 2]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        ({"a": 1}.items(), [["a", 1]]),
        ({3, 1, 10}, [1, 3, 10]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({Colour.RED, "blue"}, ["blue", "red"]),
    ],
)
def test_d2_structures_have_one_form(value, form):
    assert json.loads(text_of(value)) == form
    assert json.loads(text_of([value, {1}])) == [form, [1]]


def test_d2_a_set_of_several_types_has_an_order_that_does_not_depend_on_hashes():
    assert text_of({1, "a", None, (2, 3)}) == '["a",1,[2,3],null]'


def test_d2_keys_that_are_no_text_are_written_as_their_json():
    keys = [2, False, None, 1.5, Level.HIGH, (1, "x"), frozenset({2}), Coordinates(1, 2), b"\xff"]
    written = json.loads(text_of(dict.fromkeys(keys)))
    assert list(written) == ["2", "false", "null", "1.5", "3", '[1,"x"]', "[2]", '{"x":1,"y":2}', "/w=="]


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {date(2025, 1, 1): 1, "2025-01-01": 2}, {None: 1, "null": 2}])
def test_d2_keys_that_become_equal_are_refused(value):
    problem = problem_of({"x": value})
    assert problem.path.startswith("x")
    assert len(problem.path) > 1
    assert problem.got == "two keys that are written alike"


@pytest.mark.parametrize("key", [object(), math.inf, (1, b"x")])
def test_d2_a_key_without_a_text_form_is_refused(key):
    problem = problem_of({"x": {key: 1}})
    assert problem.path == "x"
    assert problem.got.startswith("a key that")


# d4


def test_d4_a_dict_is_compact_json_and_no_repr():
    assert text_of({"ok": True, "x": None}) == '{"ok":true,"x":null}'


def test_d4_text_is_a_json_string_in_utf_8():
    assert write_output("t", 'é "q" \n') == Written('"é \\"q\\" \\n"', 13)


@pytest.mark.parametrize(
    "value", [0, -7, 12345678901234567890, 1.5, -0.0, 1e300, True, False, "x", [1, "a"], (1, 2), {"a": [{}]}]
)
def test_d4_plain_values_are_read_back_as_they_were(value):
    written = write_output("t", value)
    assert repr(json.loads(written.text)) == repr(list(value) if isinstance(value, tuple) else value)
    assert written.size_bytes == len(written.text.encode())


# d5, d14


def test_d5_a_model_is_written_as_json_and_stays_as_it_was():
    customer = Customer(name="Ann")
    assert text_of(customer) == '{"name":"Ann","born":null}'
    assert customer == Customer(name="Ann")


def test_d5_the_input_of_a_write_is_not_changed():
    value = {"a": {1, 2}, 3: [b"x", "\ud800"]}
    write_output("t", value)
    assert value == {"a": {1, 2}, 3: [b"x", "\ud800"]}


def test_d14_a_list_result_is_a_json_list_also_of_models():
    assert text_of(["a"]) == '["a"]'
    assert (
        text_of([Customer(name="A"), Vip(name="B", level=2)]) == '[{"name":"A","born":null},{"name":"B","born":null,"level":2}]'
    )


def test_d14_subclasses_are_written_like_what_they_derive_from():
    class Text(str):
        __slots__ = ()

        def __str__(self):
            return "other"

    class Row(dict):
        def items(self):
            raise RuntimeError

    class Rows(list):
        def __iter__(self):
            raise RuntimeError

    class Amount(int):
        def __repr__(self):
            return "<amount>"

    assert text_of([Text("a"), Row(a=Rows([Amount(5)]))]) == '["a",{"a":[5]}]'
    assert text_of(Vip(name="B")) == '{"name":"B","born":null,"level":1}'


def test_d5_a_model_is_written_by_its_own_serializers_and_aliases():
    class Item(BaseModel):
        model_config = ConfigDict(ser_json_timedelta="float")
        price: Annotated[float, PlainSerializer(lambda value: f"{value:.2f}", when_used="json")]
        weight_g: int = Field(serialization_alias="weightG")
        lasts: timedelta = timedelta(seconds=5)
        secret: SecretStr = SecretStr("hunter2")
        link: HttpUrl | None = None
        hidden: int = Field(default=1, exclude=True)

        @computed_field
        @property
        def heavy(self) -> bool:
            return self.weight_g > 100

    form = {"price": "1.50", "weightG": 200, "lasts": 5.0, "secret": "**********", "link": None, "heavy": True}
    item = Item(price=1.5, weight_g=200)
    assert json.loads(text_of(item)) == form
    assert json.loads(text_of([{"item": item}, {1}])) == [{"item": form}, [1]]


def test_d5_a_part_of_a_model_that_its_json_would_hide_is_written_in_its_fixed_form():
    class Shot(BaseModel):
        png: bytes
        tags: set[str] = set()
        ratio: float = 0.5

    written = write_output("t", Shot(png=PNG, tags={"b", "a", "c"}))
    assert json.loads(written.text) == {
        "png": {"content_block": 1, "mime_type": "image/png", "bytes": len(PNG)},
        "tags": ["a", "b", "c"],
        "ratio": 0.5,
    }
    assert written.blocks == (ImageBlock(PNG, "image/png"),)
    assert problem_of([Shot(png=b"", ratio=math.nan)]).path == "[0].ratio"


def test_d5_root_models_pydantic_dataclasses_and_models_without_validation_are_models_too():
    @pydantic_dataclass
    class Pair:
        left: date
        right: int = 2

    class Deferred(BaseModel):
        model_config = ConfigDict(defer_build=True)
        n: int

    assert text_of(RootModel[list[int]]([1, 2])) == "[1,2]"
    assert text_of(Pair(date(2025, 1, 1))) == '{"left":"2025-01-01","right":2}'
    assert text_of({"d": Deferred.model_construct(n=1)}) == '{"d":{"n":1}}'
    assert text_of(Customer.model_construct(name=5)) == '{"name":5,"born":null}'


def test_d1_a_part_of_a_model_that_pydantic_cannot_write_is_named_or_written_in_its_form():
    class Holder(BaseModel):
        inner: object

    assert text_of(Holder(inner=[MappingProxyType({"a": deque([1])})])) == '{"inner":[{"a":[1]}]}'
    problem = problem_of([Holder(inner={"x": [object()]})])
    assert (problem.path, problem.got) == ("[0].inner.x[0]", "an object of type object")


# d6


def test_d6_empty_values_give_non_empty_texts_that_differ():
    texts = [text_of(value) for value in (None, "", [], {}, 0, False, b"")]
    assert texts[:6] == ["null", '""', "[]", "{}", "0", "false"]
    assert all(texts)
    assert len(set(texts)) == len(texts)


def test_d6_an_empty_explicit_text_is_not_empty():
    assert write_text("t", "") == Written('""', 2)


def test_d6_empty_text_blocks_are_dropped():
    assert write_text("t", "x", [TextBlock(""), TextBlock("y")]).blocks == (TextBlock("y"),)
    assert write_output("t", [TextBlock("")]) == Written('[""]', 4)


# d10, d17


def test_d10_an_image_as_data_url_is_a_block_and_a_short_note():
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    written = write_output("t", {"ok": 1, "shot": url, "more": [url]})
    assert json.loads(written.text) == {
        "ok": 1,
        "shot": {"content_block": 1, "mime_type": "image/png", "bytes": len(PNG)},
        "more": [{"content_block": 2, "mime_type": "image/png", "bytes": len(PNG)}],
    }
    assert written.blocks == (ImageBlock(PNG, "image/png"),) * 2


@pytest.mark.parametrize(
    ("declared", "data", "block"),
    [
        ("image/png", GIF, ImageBlock(GIF, "image/gif")),
        ("image/jpeg", b"anything", ImageBlock(b"anything", "image/jpeg")),
        ("image/svg+xml;charset=utf-8", b"<svg/>", BinaryBlock(b"<svg/>", "image/svg+xml")),
        ("application/pdf", b"%PDF-1", BinaryBlock(b"%PDF-1", "application/pdf")),
    ],
)
def test_d10_a_data_url_is_typed_by_its_bytes_and_else_by_what_it_says(declared, data, block):
    assert write_output("t", f"data:{declared};base64,{base64.b64encode(data).decode()}").blocks == (block,)


@pytest.mark.parametrize(
    "text",
    [
        "data:",
        "data: image",
        "data:image/png;base64,",
        "data:image/png;base64,....",
        "data:image/svg+xml,%3Csvg",
        "data:text/plain;base64,eA==",
    ],
)
def test_d10_other_text_that_starts_with_data_stays_text(text):
    assert write_output("t", [text]) == Written(json.dumps([text]), len(text) + 4)


def test_d10_content_blocks_in_a_value_are_blocks_in_their_order():
    blocks = (TextBlock("caption"), ImageBlock(PNG, "image/png"), BinaryBlock(b"x", "audio/wav"))
    written = write_output("t", {"content": list(blocks)})
    assert written.blocks == blocks
    assert [note["mime_type"] for note in json.loads(written.text)["content"]] == ["text/plain", "image/png", "audio/wav"]


def test_d10_blocks_that_a_tool_adds_come_after_those_of_its_value():
    written = add_blocks("t", write_output("t", GIF), (ImageBlock(PNG, "image/png"),))
    assert [block.mime_type for block in written.blocks] == ["image/gif", "image/png"]
    assert add_blocks("t", written, ()) is written


@pytest.mark.parametrize(
    "block", ["text", ImageBlock("no bytes", "image/png"), ImageBlock(b"x", "png\n"), TextBlock(5), ImageBlock, None]
)
def test_d10_what_is_no_content_block_is_refused(block):
    with pytest.raises(InvalidOutputError) as caught:
        write_text("t", "x", [TextBlock("ok"), block])
    assert caught.value.problems[0].path == "blocks[1]"


def test_d10_a_broken_content_block_in_a_value_is_refused_with_its_path():
    assert problem_of({"a": ImageBlock("no bytes", "image/png")}).path == "a"
    assert problem_of({"a": BinaryBlock(b"x", "")}).expected == "a MIME type such as image/png"


@pytest.mark.parametrize("data", [b"\x89PNG\xff\x00", b"hello", bytearray(b"\x00\xff"), memoryview(b"abcdef")[::2]])
def test_d17_bytes_are_always_a_block_also_nested(data):
    block = BinaryBlock(bytes(data), "application/octet-stream")
    assert write_output("t", data).blocks == (block,)
    written = write_output("t", [{"thumb": data}])
    assert written.blocks == (block,)
    assert json.loads(written.text) == [{"thumb": {"content_block": 1, "mime_type": block.mime_type, "bytes": len(block.data)}}]


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "image/jpeg"),
        (GIF, "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (b"RIFF1234WAVE", "application/octet-stream"),
    ],
)
def test_d17_bytes_are_typed_by_their_first_bytes(data, mime_type):
    (block,) = write_output("t", data).blocks
    assert (block.data, block.mime_type) == (data, mime_type)
    assert isinstance(block, ImageBlock) == mime_type.startswith("image/")


# What no value may do


def test_an_answer_inside_a_value_is_refused_because_its_artifacts_reach_no_model():
    assert problem_of([ToolAnswer(1, artifacts={"key": "secret"})]).got == "a ToolAnswer inside the output"
    assert "secret" not in str(problem_of(ToolAnswer(1, artifacts={"key": "secret"})))


def test_an_explicit_text_that_is_no_text_is_refused():
    with pytest.raises(InvalidOutputError) as caught:
        write_text("t", {"a": 1})
    assert caught.value.problems[0].path == "text"


class Liar:
    @property
    def __class__(self):
        raise RuntimeError("secret")


class PretendsToBeText:
    __class__ = str


class Unhashable(type):
    def __hash__(cls):
        raise RuntimeError("secret")

    def __eq__(cls, other):
        raise RuntimeError("secret")


class OfUnhashableClass(metaclass=Unhashable):
    pass


class Endless(Mapping):
    def __getitem__(self, key):
        return Endless()

    def __iter__(self):
        return iter(["deeper"])

    def __len__(self):
        return 1


@dataclass
class Raising:
    a: int = 0

    def __getattribute__(self, name):
        if name == "a":
            raise LookupError("secret")
        return object.__getattribute__(self, name)


class RaisingModel(BaseModel):
    @computed_field
    @property
    def price(self) -> int:
        raise LookupError("secret")


# Made in the test: pytest looks at parameters, which these do not bear.
HOSTILE = {
    "liar": Liar,
    "pretender": PretendsToBeText,
    "unhashable class": OfUnhashableClass,
    "a class itself": lambda: OfUnhashableClass,
    "endless": Endless,
    "raising dataclass": Raising,
    "raising model": RaisingModel,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_ends_in_invalid_output_without_its_message(name):
    value = HOSTILE[name]()
    for wrapped in (value, [value], {"a": (value,)}, {"a": {1}, "b": value}):
        assert "secret" not in str(problem_of(wrapped))


def test_what_a_property_raises_is_named_by_its_type_and_place():
    problem = problem_of({"rows": [Raising()]})
    assert (problem.path, problem.got) == ("rows[0]", "an object of type Raising that raised LookupError while it was read")


def test_an_interrupt_while_a_value_is_read_is_not_taken_for_its_failure():
    class Interrupting(Mapping):
        __getitem__ = __len__ = None

        def __iter__(self):
            raise KeyboardInterrupt

        def items(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_output("t", Interrupting())


def test_d1_a_coroutine_that_nobody_awaited_is_refused_and_closed():
    async def late():
        raise AssertionError("nobody awaits this")

    waiting = late()
    with pytest.raises(InvalidOutputError) as caught:
        write_output("t", {"a": [waiting]})
    assert caught.value.problems[0].path == "a[0]"
    assert waiting.cr_frame is None
