"""Cases d1 to d17: the program gets what a tool returned as it is, the model a text that is complete or says why it is not."""

import asyncio
import base64
import enum
import functools
import itertools
import json
import logging
import re
import threading
import uuid
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

import pytest
from pydantic import BaseModel, Field, TypeAdapter, field_validator

from callgate import (
    BinaryBlock,
    ExecutionOptions,
    ImageBlock,
    InvalidOutputError,
    OutputTooLargeError,
    TextBlock,
    Tool,
    ToolAnswer,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolRegistry,
    ToolReply,
    ToolResult,
    ToolTimeoutError,
    tool,
)
from callgate.diagnostics import DiagnosticContext, MemoryDestination

SILENT = DiagnosticContext()
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
JPEG = b"\xff\xd8\xff\xe0" + b"\x00\x10JFIF" * 50


def giving(make: Callable[[], Any], **options: Any) -> ToolRegistry:
    """Make a registry with one tool, `give`, that gives what `make` makes."""

    def give() -> Any:
        return make()

    return ToolRegistry([Tool.of(give, **options)], diagnostics=SILENT)


def result_of(value: Any, **options: Any) -> ToolResult[Any]:
    return giving(lambda: value, **options).invoke("give", {})


def failure_of(value: Any, kind: type[ToolError] = InvalidOutputError, **options: Any) -> Any:
    registry = giving(lambda: value, **options)
    with pytest.raises(kind) as caught:
        registry.invoke("give", {})
    (record,) = registry.events
    assert (record.status, record.error_code) == ("failed", caught.value.code)
    json.dumps({"error": caught.value.user_message, "record": record.invocation_id}).encode()
    return caught.value


def data_url(data: bytes, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


# d1: what has no form in JSON

LOOP: list[Any] = []
LOOP.append(LOOP)
KNOT: dict[str, Any] = {}
KNOT["a"] = [KNOT]


class Opaque:
    def __repr__(self) -> str:
        return "Opaque(password='hunter2')"


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("hunter2")


@dataclass
class Odd:
    name: str
    handle: Any


class Loose(BaseModel):
    anything: Any


UNWRITABLE: list[tuple[Any, str, str]] = [
    (dict, "", "dict"),
    (object(), "", "object"),
    (Opaque(), "", "Opaque"),
    (len, "", "builtin_function"),
    (lambda: 1, "", "function"),
    (json, "", "module"),
    (ValueError("hunter2"), "", "ValueError"),
    (threading.Lock(), "", "lock"),
    ({"a": [1, {"b": object()}]}, "a[1].b", "object"),
    (Odd("n", Opaque()), "handle", "Opaque"),
    ([Odd("n", [Opaque])], "[0].handle[0]", "Opaque"),
    (Loose(anything=Opaque()), "anything", "Opaque"),
    ({"t": (1, {"s": {1, 2}, "o": Opaque()})}, "t[1].o", "Opaque"),
    ({Opaque(): 1}, "", "Opaque"),
    ([iter([1])], "[0]", "list_iterator"),
    ([(x for x in "ab")], "[0]", "generator"),
    ({"n": [float("nan")]}, "n[0]", "NaN"),
    ({"n": float("inf")}, "n", "infinity"),
    (Decimal("NaN"), "", "NaN"),
    (Odd("n", float("-inf")), "handle", "infinity"),
    (Loose(anything=float("nan")), "anything", "NaN"),
    (LOOP, "[0]", "itself"),
    (KNOT, "a[0]", "itself"),
    ({1: "a", "1": "b"}, '["1"]', "alike"),
    (functools.reduce(lambda inner, _: [inner], range(5000), 0), "", "nesting"),
]


@pytest.mark.parametrize(("value", "path", "word"), UNWRITABLE)
def test_d1_an_output_without_a_form_in_json_is_an_error_with_the_tool_the_path_and_the_type(value, path, word):
    error = failure_of(value)
    assert "'give'" in error.user_message
    (problem,) = error.problems
    if path:
        assert problem.path == path
    assert word in f"{problem.got} {problem.expected}"
    assert "hunter2" not in error.user_message
    assert "0x" not in error.user_message


class Disguised:
    """Claim to be of another class, as proxies and mocks do."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property
    def __class__(self) -> type:
        return self._kind


def hostile() -> Any:
    return Hostile()


def hostile_inside() -> Any:
    return {"k": [Hostile()]}


async def hostile_async() -> Any:
    return Hostile()


def hostile_awaitable() -> Any:
    return asyncio.sleep(0, Hostile())


async def hostile_stream() -> Any:
    yield Hostile()


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (hostile, {"run_in": "thread"}),
        (hostile, {"run_in": "inline"}),
        (hostile_inside, {"run_in": "inline"}),
        (hostile_async, {}),
        (hostile_async, {"output": dict}),
        (hostile_awaitable, {}),
        (hostile_stream, {}),
    ],
)
async def test_d1_an_object_that_breaks_whoever_looks_at_it_is_an_error_of_the_tool(function, options):
    registry = ToolRegistry([Tool.of(function, name="give", **options)], diagnostics=SILENT)
    with pytest.raises(ToolError) as caught:
        await registry.ainvoke("give", {})
    assert caught.value.code in {"invalid_output", "tool_failed"}
    with pytest.raises(ToolError) as caught:
        await asyncio.to_thread(registry.invoke, "give", {})
    assert caught.value.code in {"invalid_output", "tool_failed"}
    assert "hunter2" not in caught.value.user_message
    assert [record.status for record in registry.events] == ["failed", "failed"]


@pytest.mark.parametrize("kind", [ToolAnswer, dict, str, bytes, list, Exception, type(iter([]))])
async def test_d1_an_object_that_claims_another_class_is_judged_by_its_own(kind):
    async def give() -> Any:
        return Disguised(kind)

    reply = await ToolRegistry([give], diagnostics=SILENT).answer("give", {})
    assert reply.is_error
    assert reply.invocation.error_code == "invalid_output"
    assert "Disguised" in reply.text


async def test_d1_the_failure_is_answered_at_once_and_the_next_call_runs():
    outputs = iter([object(), "fine"])

    @tool
    def give() -> Any:
        return next(outputs)

    registry = ToolRegistry([give], diagnostics=SILENT)
    first, second = await registry.answer("give", {}), await registry.answer("give", {})
    assert (first.is_error, second.is_error) == (True, False)
    assert second.text == '"fine"'
    assert [record.status for record in registry.events] == ["failed", "succeeded"]


# d2: types with a fixed form


class Level(enum.Enum):
    LOW = "low"
    PAIR = (1, 2)


class Number(enum.IntEnum):
    ONE = 1


class Named(NamedTuple):
    a: int
    b: str


Old = namedtuple("Old", "x")  # noqa: PYI024 - old code returns these


class Model(BaseModel):
    on: date
    tags: set[int] = {3, 1}
    alias_: int = Field(1, alias="alias-name")


@dataclass
class Record:
    at: datetime
    inner: Named
    sizes: dict[str, Decimal] = field(default_factory=dict)


ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
FORMS: list[tuple[Any, Any]] = [
    (datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z"),
    (datetime(2025, 1, 1, 2, 3, 4, 5), "2025-01-01T02:03:04.000005"),  # noqa: DTZ001 - a naive one is the point
    (date(2025, 1, 1), "2025-01-01"),
    (time(10, 30), "10:30:00"),
    (timedelta(hours=1, minutes=30), "PT1H30M"),
    (ID, str(ID)),
    (Decimal("1.10"), "1.10"),
    (Path("a/b"), "a/b"),
    (PurePosixPath("/x"), "/x"),
    (Level.LOW, "low"),
    (Level.PAIR, [1, 2]),
    (Number.ONE, 1),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    (Named(1, "x"), [1, "x"]),
    (Old(5), [5]),
    (deque([1, 2]), [1, 2]),
    (range(3), [0, 1, 2]),
    ({"a": 1}.keys(), ["a"]),
    ({"a": 1}.values(), [1]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (defaultdict(list, a=[1]), {"a": [1]}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (Model(on=date(2025, 1, 1), **{"alias-name": 2}), {"on": "2025-01-01", "tags": [1, 3], "alias-name": 2}),
    (
        Record(datetime(2025, 1, 1, tzinfo=UTC), Named(1, "x"), {"w": Decimal("0.10")}),
        {"at": "2025-01-01T00:00:00Z", "inner": [1, "x"], "sizes": {"w": "0.10"}},
    ),
    (10**30, 10**30),
    (-0.0, -0.0),
    (1e300, 1e300),
]


@pytest.mark.parametrize(("value", "form"), FORMS)
def test_d2_common_types_have_one_form_at_any_place(value, form):
    for wrapped, expected in (
        (value, form),
        ([value], [form]),
        ({"k": {"deep": (value, None)}}, {"k": {"deep": [form, None]}}),
        (Odd("n", value), {"name": "n", "handle": form}),
        (Loose(anything=[value]), {"anything": [form]}),
    ):
        assert json.loads(result_of(wrapped).text) == expected


KEYS: list[tuple[Any, str]] = [
    (datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z"),
    (date(2025, 1, 1), "2025-01-01"),
    (ID, str(ID)),
    (Decimal("1.10"), "1.10"),
    (Path("a"), "a"),
    (Level.LOW, "low"),
    (Number.ONE, "1"),
    (5, "5"),
    (2.5, "2.5"),
    (True, "true"),
    (None, "null"),
    ((1, "a"), '[1,"a"]'),
    (Named(1, "x"), '[1,"x"]'),
    (frozenset({2, 1}), "[1,2]"),
    (b"\xff\x00", "/wA="),
    ("", ""),
]


@pytest.mark.parametrize(("key", "text"), KEYS)
def test_d2_common_types_have_a_form_as_keys_as_well(key, text):
    assert json.loads(result_of({key: 1}).text) == {text: 1}
    assert json.loads(result_of([{"k": {key: {"x": key is None}}}]).text) == [{"k": {text: {"x": key is None}}}]


def test_d2_the_mixed_value_of_the_report_is_written_whole():
    value = {datetime(2025, 1, 1, tzinfo=UTC): "x", "d": Decimal("1.10"), "u": ID, "s": {1}, "p": Path("a")}
    assert result_of(value).text == f'{{"2025-01-01T00:00:00Z":"x","d":"1.10","u":"{ID}","s":[1],"p":"a"}}'


# d4, d5, d6: JSON for the model, the value for the program


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"ok": True, "x": None}, '{"ok":true,"x":null}'),
        ({"t": 'it\'s "quoted"'}, '{"t":"it\'s \\"quoted\\""}'),
        ("plain text", '"plain text"'),
        ("ü 🍸 \n", '"ü 🍸 \\n"'),
        (True, "true"),
        ((1, 2), "[1,2]"),
        (Loose(anything=None), '{"anything":null}'),
        (Odd("n", False), '{"name":"n","handle":false}'),
        ([Loose(anything={"a": None})], '[{"anything":{"a":null}}]'),
        (1.0, "1.0"),
    ],
)
def test_d4_the_model_reads_json_and_never_a_repr(value, text):
    result = result_of(value)
    assert result.text == text
    assert result.invocation.output_bytes == len(text.encode())


def test_d4_a_tool_may_choose_its_text_and_the_program_still_gets_the_value():
    value = {"rows": [1, 2]}
    result = result_of(ToolAnswer(value, text="2 rows", artifacts={"file": object()}))
    assert (result.text, result.value) == ("2 rows", value)
    assert list(result.artifacts) == ["file"]
    assert result_of(ToolAnswer(value)).text == '{"rows":[1,2]}'


VALUES = [
    Loose(anything=1),
    Odd("n", [1]),
    {"a": {"b": (1, 2)}},
    [Level.LOW],
    Named(1, "x"),
    PNG,
    {3, 1},
    None,
    "text",
    Decimal("1.0"),
]


@pytest.mark.parametrize("value", VALUES)
async def test_d5_the_program_gets_the_very_object_that_the_tool_returned(value):
    registry = giving(lambda: value)
    assert (await registry.ainvoke("give", {})).value is value
    assert await registry.execute("give", {}) is value
    reply = await registry.answer("give", {})
    assert isinstance(reply, ToolReply)
    assert reply.value is value
    json.loads(reply.text)


def test_d5_blocking_calls_and_answers_with_a_text_of_their_own_keep_the_object_as_well():
    value = Loose(anything=[1])
    assert result_of(value).value is value
    assert result_of(ToolAnswer(value, text="short")).value is value


EMPTY = [None, "", [], {}, 0, False, 0.0, [None], [[]], {"": None}, " "]


def test_d6_nothing_and_every_empty_value_have_texts_of_their_own_that_are_not_empty():
    texts = [result_of(value).text for value in EMPTY]
    assert texts[:6] == ["null", '""', "[]", "{}", "0", "false"]
    assert all(text.strip() for text in texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "value", [(), set(), frozenset(), b"", bytearray(), deque(), TextBlock(""), ToolAnswer(None, text=""), ToolAnswer("")]
)
async def test_d6_other_empty_values_and_empty_texts_are_not_empty_either(value):
    reply = await giving(lambda: value).answer("give", {})
    assert not reply.is_error
    assert reply.text.strip()
    assert all(not isinstance(block, TextBlock) or block.text for block in reply.blocks)


async def test_d6_a_tool_that_returns_nothing_and_an_error_without_words_have_a_text():
    @tool
    async def nothing() -> None:
        pass

    @tool
    async def wordless() -> None:
        raise ToolError("")

    registry = ToolRegistry([nothing, wordless], diagnostics=SILENT)
    assert (await registry.answer("nothing", {})).text == "null"
    assert (await registry.answer("wordless", {})).text.strip()


# d8, d9: size

MILLION = "<" + "x" * 999_998 + ">"


@pytest.mark.parametrize("cap", [1, 10, 100, 256, 1000, 10_000])
@pytest.mark.parametrize("value", [MILLION, ["ü" * 100] * 1000, {"k": "🍸" * 50_000}, list(range(100_000))])
@pytest.mark.parametrize("mode", ["truncate", "spill"])
def test_d8_a_cut_output_fits_its_cap_in_bytes_with_the_marker_inside(cap, value, mode):
    result = result_of(value, max_output_bytes=cap, on_oversize=mode)
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert 0 < len(result.text.encode()) <= cap
    assert result.value is value  # the whole stays with the program
    assert result.invocation.output_bytes == len(whole.encode())
    assert set(result.invocation.notes) <= {"truncated", "spilled"}
    assert result.invocation.notes
    if cap >= 256:
        assert str(len(whole.encode())) in result.text
        assert result.text.startswith(whole[:20])


def test_d8_truncation_keeps_head_and_tail():
    text = result_of(MILLION, max_output_bytes=1000, on_oversize="truncate").text
    assert text.startswith('"<xxx')
    assert text.endswith('xxx>"')
    assert "1000002 bytes" in text


def test_d8_without_another_choice_an_output_over_the_cap_is_an_error_with_both_sizes():
    error = failure_of(MILLION, OutputTooLargeError, max_output_bytes=1000)
    assert (error.status, error.size_bytes, error.limit_bytes) == (413, 1_000_002, 1000)
    assert "1000002" in error.user_message
    assert len(error.user_message) < 1000


def test_d8_there_is_a_default_cap_that_a_tool_a_registry_and_a_call_can_move():
    failure_of(MILLION, OutputTooLargeError)
    assert len(result_of(MILLION, max_output_bytes=None).text) == 1_000_002
    registry = ToolRegistry([Tool.of(lambda: MILLION, name="give")], default_max_output_bytes=None, diagnostics=SILENT)
    assert len(registry.invoke("give", {}).text) == 1_000_002
    with pytest.raises(OutputTooLargeError):
        registry.invoke("give", {}, options=ExecutionOptions(max_output_bytes=10))
    assert len(giving(lambda: MILLION).invoke("give", {}, options=ExecutionOptions(max_output_bytes=None)).text) == 1_000_002


def test_d8_what_was_spilled_can_be_read_whole_in_pages_by_the_thread_that_wrote_it():
    value = {"text": "ü🍸" * 20_000}
    registry = giving(lambda: value, max_output_bytes=1000, on_oversize="spill")
    result = registry.invoke("give", {}, thread_id="t1")
    assert result.invocation.notes == ("spilled",)
    head, _, tail = result.text.partition("\n[cut here")
    arguments = json.loads(re.search(r"read_output\((\{.*\})\)", tail)[1])
    whole, offset = head, arguments["offset"]
    while offset is not None:
        page = registry.invoke("read_output", {**arguments, "offset": offset}, thread_id="t1").value
        whole, offset = whole + page.text, page.next_offset
    assert json.loads(whole) == value
    with pytest.raises(ToolError):
        registry.invoke("read_output", arguments, thread_id="t2")


async def test_d8_errors_are_capped_too():
    @tool
    def fail() -> None:
        raise ToolError("<" + "x" * 1_000_000 + ">")

    reply = await ToolRegistry([fail], diagnostics=SILENT).answer("fail", {})
    assert reply.is_error
    assert len(reply.text) <= 4000
    assert "cut" in reply.text


def test_d8_a_text_of_the_tools_own_and_text_blocks_are_capped_as_well():
    for answer in (
        ToolAnswer(1, text=MILLION),
        ToolAnswer(1, blocks=(TextBlock(MILLION),)),
        TextBlock(MILLION),
        [TextBlock(MILLION)] * 3,
    ):
        failure_of(answer, OutputTooLargeError, max_output_bytes=1000)
        result = result_of(answer, max_output_bytes=1000, on_oversize="truncate")
        texts = [result.text, *(block.text for block in result.blocks if isinstance(block, TextBlock))]
        assert sum(len(text.encode()) for text in texts) <= 1000


@pytest.mark.parametrize("mode", ["error", "truncate", "spill"])
@pytest.mark.parametrize("character", ["x", "ü", "🍸"])
def test_d9_an_output_is_cut_from_the_first_byte_over_its_cap_on_and_never_silently(mode, character):
    width = len(character.encode())
    for size in (9_999, 10_000, 10_001):
        filling = size - 2
        value = character * (filling // width) + "x" * (filling % width)  # two quotes make it `size` bytes
        if size > 10_000 and mode == "error":
            assert failure_of(value, OutputTooLargeError, max_output_bytes=10_000, on_oversize=mode).size_bytes == size
            continue
        result = result_of(value, max_output_bytes=10_000, on_oversize=mode)
        assert result.invocation.output_bytes == size
        if size <= 10_000:
            assert (json.loads(result.text), result.invocation.notes) == (value, ())
        else:
            assert result.invocation.notes == ({"truncate": "truncated", "spill": "spilled"}[mode],)
            assert str(size) in result.text
            assert len(result.text.encode()) <= 10_000


def test_d9_a_character_is_never_cut_in_two():
    for cap in range(40, 90):
        text = result_of("🍸" * 1000, max_output_bytes=cap, on_oversize="truncate").text
        assert len(text.encode()) <= cap
        assert "\ufffd" not in text


# d10, d17: images and other bytes

IMAGES: list[tuple[Any, list[tuple[bytes, str]]]] = [
    (PNG, [(PNG, "image/png")]),
    (bytearray(JPEG), [(JPEG, "image/jpeg")]),
    (memoryview(b"GIF89a" + b"x" * 50), [(b"GIF89a" + b"x" * 50, "image/gif")]),
    (data_url(PNG), [(PNG, "image/png")]),
    ({"ok": 1, "shot": data_url(PNG)}, [(PNG, "image/png")]),
    ({"ok": 1, "shots": [PNG, {"second": data_url(JPEG, "image/jpeg")}]}, [(PNG, "image/png"), (JPEG, "image/jpeg")]),
    (Odd("n", PNG), [(PNG, "image/png")]),
    (Loose(anything=[PNG]), [(PNG, "image/png")]),
    ([ImageBlock(PNG, "image/png")], [(PNG, "image/png")]),
    (ImageBlock(PNG, "image/png"), [(PNG, "image/png")]),
    (Named(1, PNG), [(PNG, "image/png")]),
    ((data_url(PNG, "image/jpeg"),), [(PNG, "image/png")]),  # what the bytes are counts, not what was claimed
]


@pytest.mark.parametrize(("value", "images"), IMAGES)
def test_d10_an_image_is_a_typed_block_with_a_short_note_in_its_place(value, images):
    result = result_of(value)
    assert [(block.data, block.mime_type) for block in result.blocks] == images
    assert all(isinstance(block, ImageBlock) for block in result.blocks)
    assert base64.b64encode(PNG).decode()[:40] not in result.text
    assert len(result.text) < 400
    for number, (data, mime_type) in enumerate(images, 1):
        note = {"content_block": number, "mime_type": mime_type, "bytes": len(data)}
        assert json.dumps(note, separators=(",", ":")) in result.text
    assert result.value is value


def test_d10_a_cap_on_the_text_never_cuts_into_an_image():
    value = {"shot": PNG * 100, "text": "x" * 5000}
    result = result_of(value, max_output_bytes=300, on_oversize="truncate")
    assert len(result.text.encode()) <= 300
    (block,) = result.blocks
    assert block.data == PNG * 100
    assert result_of(PNG * 1000, max_output_bytes=200).blocks[0].data == PNG * 1000


def test_d10_images_have_a_bound_of_their_own():
    failure_of([PNG * 10_000] * 3, OutputTooLargeError, max_output_bytes=None)


def test_d10_an_answer_adds_blocks_beside_the_value():
    result = result_of(ToolAnswer({"ok": 1}, blocks=(ImageBlock(PNG, "image/png"), TextBlock("caption"))))
    assert result.text == '{"ok":1}'
    assert [type(block) for block in result.blocks] == [ImageBlock, TextBlock]


@pytest.mark.parametrize(
    "text",
    ["data:", "data:,x", "data:text/plain,hello", "data:image/png;base64,!!!", "see data:image/png;base64,AAAA", "data: none"],
)
def test_d10_text_that_only_looks_like_an_image_stays_text(text):
    result = result_of([text])
    assert (json.loads(result.text), result.blocks) == ([text], ())


BINARY = [b"\x89PNG\xff\x00", b"\x00", b"\xff\xfe", bytes(range(256)), b"plain text", b"%PDF-1.7 x", "ü".encode()]


@pytest.mark.parametrize("data", BINARY)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview], ids=str)
def test_d17_bytes_are_a_typed_block_at_any_place_and_none_is_lost(data, wrap):
    for value in (wrap(data), [wrap(data)], {"k": [{"deep": wrap(data)}]}, Odd("n", wrap(data)), Loose(anything=wrap(data))):
        result = result_of(value)
        (block,) = result.blocks
        assert type(block) is BinaryBlock
        assert block.data == data
        assert f'"bytes":{len(data)}' in result.text
        assert result.value is value


def test_d17_declared_bytes_work_and_a_program_gets_them_as_they_are():
    @tool(output=bytes)
    def thumb() -> bytes:
        return b"\x89PNG\xff\x00"

    class Thumb(BaseModel):
        data: bytes

    @tool(output=Thumb)
    def nested() -> Thumb:
        return Thumb(data=b"\xff\x00")

    registry = ToolRegistry([thumb, nested], diagnostics=SILENT)
    result = registry.invoke("thumb", {})
    assert (result.value, result.blocks[0].data) == (b"\x89PNG\xff\x00", b"\x89PNG\xff\x00")
    result = registry.invoke("nested", {})
    assert (result.value.data, result.blocks[0].data) == (b"\xff\x00", b"\xff\x00")


def test_d17_many_bytes_keep_their_order():
    parts = [bytes([number]) * (number + 1) for number in range(20)]
    assert [block.data for block in result_of({"parts": parts}).blocks] == parts


# d11, d16: what has to be run on


def two_sync():
    yield "a"
    yield {"n": 2}


async def two_async():
    yield "a"
    await asyncio.sleep(0)
    yield {"n": 2}


def none_sync():
    yield from ()


async def none_async():
    for each in ():
        yield each


class Stream:
    async def __call__(self, n: int):
        for number in range(n):
            yield number


def returning_a_generator():
    return two_sync()


def returning_an_async_generator():
    return two_async()


@pytest.mark.parametrize(
    ("function", "items"),
    [
        (two_sync, ["a", {"n": 2}]),
        (two_async, ["a", {"n": 2}]),
        (none_sync, []),
        (none_async, []),
        (returning_a_generator, ["a", {"n": 2}]),
        (returning_an_async_generator, ["a", {"n": 2}]),
        (functools.partial(two_async), ["a", {"n": 2}]),
    ],
)
@pytest.mark.parametrize("blocking", [True, False])
async def test_d11_a_generator_is_collected_and_each_item_is_progress(function, items, blocking):
    memory = MemoryDestination(content=True)
    registry = ToolRegistry([Tool.of(function, name="stream")], diagnostics=DiagnosticContext.of(memory))
    if blocking:
        result = await asyncio.to_thread(registry.invoke, "stream", {})
    else:
        result = await registry.ainvoke("stream", {})
    assert (result.value, json.loads(result.text)) == (items, items)
    progress = [event.payload for event in memory.named("tool.progress")]
    assert [each.item for each in progress] == items
    assert [each.sequence for each in progress] == list(range(1, len(items) + 1))
    assert "generator" not in result.text


async def test_d11_objects_and_explicit_tools_that_stream_are_collected_as_well():
    def explicit(arguments: dict[str, int]):
        yield from range(arguments["n"])

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    registry = ToolRegistry([Stream(), Tool("explicit", explicit, input_schema=schema)], diagnostics=SILENT)
    assert [(await registry.ainvoke(name, {"n": 3})).value for name in registry.ids()] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("is_async", [True, False])
async def test_d11_a_generator_that_fails_on_the_way_is_a_failure_and_closed(is_async):
    closed = []

    def sync():
        try:
            yield 1
            raise ValueError("hunter2")
        finally:
            closed.append("sync")

    async def asynchronous():
        try:
            yield 1
            raise ValueError("hunter2")
        finally:
            closed.append("async")

    registry = ToolRegistry([Tool.of(asynchronous if is_async else sync, name="stream")], diagnostics=SILENT)
    with pytest.raises(ToolFailedError) as caught:
        await registry.ainvoke("stream", {})
    assert isinstance(caught.value.__cause__, ValueError)
    assert "hunter2" not in caught.value.user_message
    assert closed == ["async" if is_async else "sync"]


async def test_d11_items_that_cannot_be_written_and_streams_that_are_too_long_are_errors():
    @tool
    async def odd():
        yield 1
        yield object()

    @tool(max_output_bytes=100)
    def long():
        yield from range(1000)

    registry = ToolRegistry([odd, long], diagnostics=SILENT)
    with pytest.raises(InvalidOutputError) as caught:
        await registry.ainvoke("odd", {})
    assert caught.value.problems[0].path == "[1]"
    with pytest.raises(OutputTooLargeError):
        await registry.ainvoke("long", {})


async def test_d11_a_stream_without_end_is_stopped_at_its_limit():
    closed = asyncio.Event()

    @tool(timeout_s=0.05)
    async def endless():
        try:
            for number in itertools.count():
                yield number
                await asyncio.sleep(0)
        finally:
            closed.set()

    with pytest.raises(ToolTimeoutError):
        await ToolRegistry([endless], diagnostics=SILENT).ainvoke("endless", {})
    await asyncio.wait_for(closed.wait(), 10)


class Promise:
    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return "v"


async def coroutine() -> str:
    await asyncio.sleep(0)
    return "v"


def plain_returning_sleep():
    return asyncio.sleep(0, "v")


def plain_returning_coroutine():
    return coroutine()


def plain_returning_promise():
    return Promise()


async def async_returning_value() -> str:
    return await coroutine()


class Caller:
    def __call__(self):
        return coroutine()

    def method(self):
        return Promise()


AWAITABLES = [
    plain_returning_sleep,
    plain_returning_coroutine,
    plain_returning_promise,
    async_returning_value,
    lambda: coroutine(),
    functools.partial(plain_returning_coroutine),
    Caller(),
    Caller().method,
]


@pytest.mark.parametrize("function", AWAITABLES)
@pytest.mark.parametrize("run_in", [None, "inline", "thread"])
async def test_d16_whatever_must_be_awaited_is_awaited_wherever_it_came_from(function, run_in):
    if run_in == "thread" and asyncio.iscoroutinefunction(function):
        return
    options = {} if run_in is None else {"run_in": run_in}
    registry = ToolRegistry([Tool.of(function, name="f", **options)], diagnostics=SILENT)
    result = await registry.ainvoke("f", {})
    assert (result.value, result.text) == ("v", '"v"')
    assert (await asyncio.to_thread(registry.invoke, "f", {})).value == "v"


async def test_d16_an_explicit_tool_and_one_with_a_context_may_return_an_awaitable():
    def explicit(arguments: dict[str, Any]):
        return asyncio.sleep(0, arguments)

    def with_context(ctx: ToolContext):
        return asyncio.sleep(0, ctx.tool)

    registry = ToolRegistry([Tool("explicit", explicit, input_schema={"type": "object"}), with_context], diagnostics=SILENT)
    assert (await registry.ainvoke("explicit", {"a": 1})).value == {"a": 1}
    assert (await registry.ainvoke("with_context", {})).value == "with_context"


async def test_d16_what_is_awaited_late_fails_and_times_out_like_everything_else():
    async def failing() -> None:
        raise ToolError("on purpose")

    @tool
    def fails():
        return failing()

    @tool(timeout_s=0.05)
    def hangs():
        return asyncio.sleep(3600)

    registry = ToolRegistry([fails, hangs], diagnostics=SILENT)
    with pytest.raises(ToolError, match="on purpose"):
        await registry.ainvoke("fails", {})
    with pytest.raises(ToolTimeoutError):
        await registry.ainvoke("hangs", {})


# d12, d13, d14, d15: errors, declared outputs, annotations


@pytest.mark.parametrize("is_async", [True, False])
async def test_d12_a_raised_tool_error_is_an_error_everywhere_and_a_dict_is_what_it_is(is_async):
    def refuse() -> dict[str, str]:
        raise ToolError("no such id", code="not_found", status=404, try_other_arguments=True)

    async def refuse_async() -> dict[str, str]:
        return refuse()

    def tell() -> dict[str, str]:
        return {"error": "no such id"}

    memory = MemoryDestination()
    tools = [Tool.of(refuse_async if is_async else refuse, name="refuse"), tell]
    registry = ToolRegistry(tools, diagnostics=DiagnosticContext.of(memory))
    refused, told = await registry.answer("refuse", {}), await registry.answer("tell", {})
    assert (refused.is_error, told.is_error) == (True, False)
    assert refused.text.startswith("no such id")
    assert "other arguments" in refused.text
    assert told.value == {"error": "no such id"}
    assert [(record.status, record.error_code, record.error_status) for record in registry.events] == [
        ("failed", "not_found", 404),
        ("succeeded", None, None),
    ]
    assert [len(memory.named(name)) for name in ("tool.failed", "tool.finished")] == [1, 1]
    with pytest.raises(ToolError) as caught:
        await registry.ainvoke("refuse", {})
    assert (caught.value.code, caught.value.status, caught.value.user_message) == ("not_found", 404, "no such id")


async def test_d12_an_output_parser_can_make_errors_of_dicts_that_mean_one():
    def no_errors(value: dict[str, Any]) -> dict[str, Any]:
        if value.keys() == {"error"}:
            raise ToolError(f"the shop says: {value['error']}")
        return value

    @tool(parse_output=no_errors)
    def find(id: str) -> dict[str, str]:  # noqa: A002 - as authors do
        return {"error": "no such id"} if id == "?" else {"id": id}

    registry = ToolRegistry([find], diagnostics=SILENT)
    assert (await registry.answer("find", {"id": "1"})).value == {"id": "1"}
    reply = await registry.answer("find", {"id": "?"})
    assert reply.is_error
    assert "the shop says: no such id" in reply.text


class Count(BaseModel):
    n: int


class CountDict(TypedDict):
    n: int


@dataclass
class CountData:
    n: int


def strict_count(value: Any) -> Any:
    if not (isinstance(value, dict) and set(value) == {"n"} and type(value["n"]) is int):
        raise ValueError("hunter2")
    return value


COUNT_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
DECLARED: dict[str, dict[str, Any]] = {
    "schema": {"output_schema": COUNT_SCHEMA},
    "typed dict": {"output": CountDict},
    "model": {"output": Count},
    "dataclass": {"output": CountData},
    "adapter": {"output": TypeAdapter(Count)},
    "function": {"parse_output": strict_count},
}
WRONG: list[Any] = [
    {"wrong": "shape"},
    {"n": "1"},
    {"n": None},
    {"n": 1.5},
    {"n": True},
    {},
    None,
    "text",
    [1],
    5,
    {"n": object()},
    object(),
]


@pytest.mark.parametrize("form", DECLARED)
@pytest.mark.parametrize("value", WRONG)
def test_d13_an_output_that_is_not_what_was_declared_is_never_a_success(form, value):
    error = failure_of(value, **DECLARED[form])
    assert (error.status, error.code) == (502, "invalid_output")
    assert error.problems
    assert "hunter2" not in error.user_message


@pytest.mark.parametrize("form", DECLARED)
def test_d13_the_declared_output_passes_in_every_form(form):
    result = result_of({"n": 1}, **DECLARED[form])
    assert json.loads(result.text) == {"n": 1}
    assert result.invocation.status == "succeeded"


def test_d13_the_place_is_named():
    for options in (
        {"output": list[Count]},
        {"output_schema": {"items": {"type": "object", "properties": {"n": {"type": "integer"}}}}},
    ):
        error = failure_of([{"n": 1}, {"n": "x"}], **options)
        assert [problem.path for problem in error.problems] == ["[1].n"]


class Breaking(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        raise KeyError("hunter2")


def breaking(value: Any) -> Any:
    raise KeyError("hunter2")


@pytest.mark.parametrize("options", [{"output": Breaking}, {"output": list[Breaking]}, {"parse_output": breaking}])
@pytest.mark.parametrize("value", [{"n": 1}, [{"n": 1}], ToolAnswer({"n": 1}, text="fine")])
def test_d13_a_check_that_breaks_is_an_invalid_output_without_its_words(options, value):
    error = failure_of(value, **options)
    assert "hunter2" not in error.user_message


@pytest.mark.parametrize(
    "value",
    [Hostile, lambda: {"k": Hostile()}, lambda: LOOP, lambda: float("nan"), Opaque],
    ids=["hostile", "hostile inside", "a loop", "nan", "opaque"],
)
@pytest.mark.parametrize("form", DECLARED)
async def test_d13_a_value_that_cannot_even_be_looked_at_is_an_invalid_output(form, value):
    async def give() -> Any:
        return [value()]

    reply = await ToolRegistry([Tool.of(give, **DECLARED[form])], diagnostics=SILENT).answer("give", {})
    assert reply.is_error
    assert reply.invocation.error_code == "invalid_output"
    assert "hunter2" not in reply.text


def test_d13_the_value_of_an_answer_is_checked_as_well():
    failure_of(ToolAnswer({"wrong": 1}, text="fine"), output=Count)
    assert result_of(ToolAnswer(Count(n=1), text="fine"), output=Count).text == "fine"


async def test_d13_a_wrong_output_is_an_error_for_the_model_in_async_calls_and_streams_too():
    @tool(output=list[int])
    async def stream():
        yield 1
        yield "two"

    reply = await ToolRegistry([stream], diagnostics=SILENT).answer("stream", {})
    assert reply.is_error
    assert "[1]" in reply.text


@pytest.mark.parametrize("value", [["a"], "a", 5, None, True, 2.5, [["a"], []], ("a",), {"a"}])
@pytest.mark.parametrize("declared", [True, False])
def test_d14_values_that_are_no_objects_are_results_like_others(value, declared):
    options = {"output": type(value)} if declared else {}
    result = result_of(value, **options)
    assert result.value == value
    assert json.loads(result.text) == (list(value) if isinstance(value, tuple | set) else value)


class LoudAnswer(ToolAnswer[Any]):
    """An answer of a host's own kind."""


class Base(BaseModel):
    a: int


class Sub(Base):
    b: int = 2


class Text(str):
    __slots__ = ()


class Rows(list[Any]):
    pass


def test_d14_subclasses_of_results_and_of_declared_types_work():
    result = result_of(LoudAnswer({"a": 1}, text="loud"))
    assert (result.text, result.value) == ("loud", {"a": 1})
    assert type(result_of(Sub(a=1), output=Base).value) is Sub
    assert json.loads(result_of([Sub(a=1)]).text) == [{"a": 1, "b": 2}]
    assert result_of(Text("t")).text == '"t"'
    assert result_of(Rows([Text("t")]), output=list).text == '["t"]'


def annotated_wrongly() -> str:
    return ["a"]  # type: ignore[return-value]


async def annotated_wrongly_and_async() -> int:
    return "a"  # type: ignore[return-value]


def annotated_as_a_model() -> Count:
    return {"wrong": 1}  # type: ignore[return-value]


def annotated_with_an_unknown_name() -> "NoSuchType":  # noqa: F821 - as authors do
    return 1


WRONGLY = {
    annotated_wrongly: (["a"], "annotated as str, returned list"),
    annotated_wrongly_and_async: ("a", "annotated as int, returned str"),
    annotated_as_a_model: ({"wrong": 1}, "annotated as Count, returned dict"),
}


@pytest.mark.parametrize("function", [*WRONGLY, annotated_with_an_unknown_name])
async def test_d15_a_wrong_return_annotation_keeps_no_good_result_back(function):
    expected = WRONGLY.get(function, (1, ""))[0]
    result = await ToolRegistry([function], diagnostics=SILENT).ainvoke(function.__name__, {})
    assert result.value == expected
    assert json.loads(result.text) == expected
    assert result.invocation.status == "succeeded"


@pytest.mark.parametrize("function", WRONGLY)
async def test_d15_the_warning_names_annotation_and_actual_type(function):
    value, words = WRONGLY[function]
    assert Tool.of(function).input.check_return(value) == words


@pytest.mark.parametrize("function", WRONGLY)
async def test_d15_the_developer_is_warned_when_it_happens(function, caplog):
    caplog.set_level(logging.DEBUG)
    result = await ToolRegistry([function]).ainvoke(function.__name__, {})
    seen = "\n".join([record.getMessage() for record in caplog.records] + list(result.invocation.notes))
    assert WRONGLY[function][1] in seen


def test_d15_a_right_annotation_gives_no_warning():
    def names() -> list[str]:
        return ["a"]

    assert Tool.of(names).input.check_return(["a"]) is None
    assert Tool.of(two_async).input.check_return(["a"]) is None
