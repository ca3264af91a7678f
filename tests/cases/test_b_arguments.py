"""Cases b1 to b20: whatever a model sends is read as what it says, or refused with the place and the reason."""

import asyncio
import json
import time
from datetime import date
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from callgate import (
    CallContext,
    ExecutionOptions,
    InvalidInputError,
    Tool,
    ToolError,
    ToolNotFoundError,
    ToolNotOfferedError,
    ToolRegistry,
    tool,
)
from callgate.diagnostics import DiagnosticContext

SILENT = DiagnosticContext()


class Spy:
    """Make one-parameter tools that keep what they got."""

    def __init__(self, annotation: Any, *, name: str = "spy") -> None:
        self.got: list[Any] = []
        got = self.got

        def spy(x):
            got.append(x)
            return "done"

        spy.__annotations__ = {"x": annotation}
        self.registry = ToolRegistry([Tool.of(spy, name=name)], diagnostics=SILENT)
        self.name = name

    def send(self, arguments: object, *, repair: bool = True) -> tuple[str, ...]:
        """Call with raw arguments; give the repairs of the receipt."""
        return self.registry.invoke(self.name, arguments, options=ExecutionOptions(repair=repair)).invocation.repairs

    def refuse(self, arguments: object, *, repair: bool = True) -> InvalidInputError:
        """Expect a refusal, and that nothing ran."""
        before = len(self.got)
        with pytest.raises(InvalidInputError) as caught:
            self.send(arguments, repair=repair)
        assert len(self.got) == before
        return caught.value


def keeper(got: list[Any]) -> Tool[Any, Any]:
    """Make a tool that keeps its arguments as they are."""

    def execute(arguments: object) -> None:
        got.append(arguments)

    return Tool("raw", execute, input_schema={"type": "object"})


def paths(error: InvalidInputError) -> list[str]:
    return [problem.path for problem in error.problems]


# b1: no arguments

NOTHING = ["", "   ", "\n\t ", None, "null", " null ", "{}", "{ }", {}, b"", b"null", MappingProxyType({})]


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("repair", [True, False])
def test_b1_no_arguments_in_any_form_call_a_tool_without_parameters(nothing, repair):
    @tool
    def ping() -> str:
        return "pong"

    @tool
    def wave(hand: str = "left") -> str:
        return hand

    raw = Tool("raw", lambda arguments: arguments, input_schema={"type": "object"})
    registry = ToolRegistry([ping, wave, raw], diagnostics=SILENT)
    options = ExecutionOptions(repair=repair)
    assert [registry.invoke(name, nothing, options=options).value for name in registry.ids()] == ["pong", "left", {}]


@pytest.mark.parametrize("nothing", NOTHING)
def test_b1_a_tool_that_needs_arguments_asks_for_them_by_name(nothing):
    error = Spy(int).refuse(nothing)
    assert paths(error) == ["x"]
    assert "missing" in error.problems[0].got


# b4, b5: text and numbers

LOOKS_LIKE = [
    "12345",
    "007",
    "1e5",
    "true",
    "false",
    "null",
    "0",
    "-1",
    "1.0",
    "[1]",
    '{"a": 1}',
    '"quoted"',
    "NaN",
    "",
    " ",
    "None",
]


@pytest.mark.parametrize("text", LOOKS_LIKE)
@pytest.mark.parametrize("as_json", [True, False])
def test_b4_text_stays_text_whatever_it_looks_like(text, as_json):
    def sent(arguments: object) -> object:
        return json.dumps(arguments) if as_json else arguments

    for annotation, value in ((str, text), (list[str], [text]), (dict[str, str], {"k": text}), (str | None, text), (Any, text)):
        spy = Spy(annotation)
        assert spy.send(sent({"x": value})) == ()
        assert spy.got == [value]


@pytest.mark.parametrize("text", LOOKS_LIKE)
def test_b4_a_raw_schema_of_text_keeps_it_as_well_and_a_mixed_one_too(text):
    schema = {"type": "object", "properties": {"x": {"type": ["string", "integer", "array", "null"]}, "y": {"type": "string"}}}
    raw = Tool("raw", lambda arguments: arguments, input_schema=schema)
    result = ToolRegistry([raw], diagnostics=SILENT).invoke("raw", {"x": text, "y": text})
    assert result.value == {"x": text, "y": text}
    assert result.invocation.repairs == ()


def test_b4_numbers_are_never_made_into_text():
    for value in (5, 1.5, True, None, [], {}):
        assert paths(Spy(str).refuse({"x": value})) == ["x"]


FAITHFUL: list[tuple[Any, str, object]] = [
    (int, "5", 5),
    (int, "-12", -12),
    (int, "0", 0),
    (float, "2.5", 2.5),
    (float, "1e3", 1000.0),
    (float, "5", 5.0),
    (bool, "true", True),
    (bool, "false", False),
    (int | None, "5", 5),
    (Annotated[int, Field(ge=1)], "5", 5),
    (list[int], "[1, 2]", [1, 2]),
    (dict[str, int], '{"a": 1}', {"a": 1}),
]


@pytest.mark.parametrize(("annotation", "text", "value"), FAITHFUL)
def test_b5_faithful_text_is_read_with_repair_named_in_the_receipt_and_refused_without(annotation, text, value):
    spy = Spy(annotation)
    (repair,) = spy.send({"x": text})
    assert repair.startswith("x: ")
    assert spy.got == [value]
    assert type(spy.got[0]) is type(value)
    error = spy.refuse({"x": text}, repair=False)
    assert paths(error) == ["x"]
    assert "text" in error.problems[0].got


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(
    "text",
    ["0x5", "1,000", "5abc", " 5", "5 ", "+5", "05", "5.", ".5", "1_000", "\u0665", "five", "", "5;", "NaN", "Infinity", "1e999"],
)
def test_b5_text_that_is_no_json_number_is_refused(text, repair):
    for annotation in (int, float, int | None, list[int]):
        error = Spy(annotation).refuse({"x": [text] if annotation == list[int] else text}, repair=repair)
        assert paths(error) == ["x[0]" if annotation == list[int] else "x"]
        assert "number" in error.problems[0].expected or "integer" in error.problems[0].expected


def test_b5_a_repair_is_named_without_the_value():
    assert Spy(int).send({"x": "987654"}) == ("x: text read as an integer",)
    assert "secret" not in "".join(Spy(dict[str, str]).send({"x": '{"secret": "value"}'}))


@pytest.mark.parametrize("repair", [True, False])
def test_b5_other_kinds_are_never_taken_for_one_another(repair):
    wrong: list[tuple[Any, object]] = [
        (int, True),
        (int, 1.5),
        (float, True),
        (bool, 1),
        (bool, 0),
        (bool, "yes"),
        (bool, "True"),
        (bool, "1"),
        (list[int], "1, 2"),
        (list[int], 1),
        (list[str], "a"),
        (dict[str, int], "a=1"),
        (dict[str, int], []),
        (int, "1.5"),
        (int, [5]),
    ]
    for annotation, value in wrong:
        assert paths(Spy(annotation).refuse({"x": value}, repair=repair)) == ["x"], (annotation, value)


def test_b5_repairs_reach_into_nested_values_and_touch_nothing_beside_them():
    class Line(BaseModel):
        sku: str
        count: int

    spy = Spy(list[Line])
    assert spy.send({"x": [{"sku": "007", "count": 1}, {"sku": "1e5", "count": "2"}]}) == ("x[1].count: text read as an integer",)
    assert spy.got == [[Line(sku="007", count=1), Line(sku="1e5", count=2)]]


def test_b5_a_repair_that_still_does_not_fit_is_a_refusal():
    error = Spy(Annotated[int, Field(le=3)]).refuse({"x": "5"})
    assert [(problem.path, problem.expected) for problem in error.problems] == [("x", "at most 3")]


def test_b5_the_callers_own_mapping_is_never_changed():
    arguments = {"x": {"n": "5"}}
    before = json.dumps(arguments)
    spy = Spy(dict[str, int])
    spy.send(arguments)
    assert (json.dumps(arguments), spy.got) == (before, [{"n": 5}])


# b7: unknown names


def reader(ran: list[object]) -> Any:
    class Filter(BaseModel):
        author: str = ""

    @tool
    def read(topic: str = "", limit: int = 5, filter: Filter | None = None) -> str:  # noqa: A002 - as authors do
        ran.append((topic, limit, filter))
        return "read"

    return read


@pytest.mark.parametrize("repair", [True, False])
def test_b7_an_unknown_argument_is_refused_with_the_nearest_and_the_known_names(repair):
    ran: list[object] = []
    registry = ToolRegistry([reader(ran)], diagnostics=SILENT)
    for sent, near in (({"topc": "x"}, "topic"), ({"Topic": "x"}, "topic"), ({"topic": "x", "limits": 3}, "limit")):
        with pytest.raises(InvalidInputError) as caught:
            registry.invoke("read", sent, options=ExecutionOptions(repair=repair))
        unknown = next(name for name in sent if name != "topic")
        assert paths(caught.value) == [unknown]
        assert f"did you mean '{near}'?" in caught.value.user_message
        assert all(name in caught.value.user_message for name in ("topic", "limit", "filter"))
    assert ran == []


def test_b7_unknown_names_are_refused_in_nested_objects_and_in_every_kind_of_input():
    class Payload(BaseModel):
        topic: str = ""

    ran: list[object] = []
    nested = ToolRegistry([reader(ran)], diagnostics=SILENT)
    with pytest.raises(InvalidInputError) as caught:
        nested.invoke("read", {"filter": {"autor": "x"}})
    assert paths(caught.value) == ["filter.autor"]
    assert "did you mean 'author'?" in caught.value.user_message
    forms: list[dict[str, Any]] = [{"input": Payload}, {"input_schema": {"properties": {"topic": {"type": "string"}}}}]
    for form in forms:
        explicit = ToolRegistry([Tool("explicit", lambda given: ran.append(given), **form)], diagnostics=SILENT)
        with pytest.raises(InvalidInputError) as caught:
            explicit.invoke("explicit", {"topc": "x"})
        assert paths(caught.value) == ["topc"]
        assert "did you mean 'topic'?" in caught.value.user_message
    assert ran == []


def test_b7_a_tool_without_parameters_refuses_them_as_well():
    @tool
    def ping() -> str:
        return "pong"

    with pytest.raises(InvalidInputError) as caught:
        ToolRegistry([ping], diagnostics=SILENT).invoke("ping", {"random_key": 1})
    assert paths(caught.value) == ["random_key"]


def test_b7_names_that_a_client_always_adds_are_dropped_and_named_in_the_receipt():
    ran: list[object] = []
    registry = ToolRegistry([reader(ran)], diagnostics=SILENT)
    options = ExecutionOptions(ignored_arguments=frozenset({"security_risk", "topic"}))
    result = registry.invoke("read", {"topic": "x", "security_risk": "LOW"}, options=options)
    assert ran == [("x", 5, None)]  # a name that the tool knows is never dropped
    assert result.invocation.repairs == ("security_risk: ignored",)
    with pytest.raises(InvalidInputError) as caught:
        registry.invoke("read", {"security_risk": "LOW", "other": 1}, options=options)
    assert paths(caught.value) == ["other"]


def test_b7_open_tools_take_any_name():
    @tool
    def log(**fields: str) -> dict[str, str]:
        return fields

    anything = Tool("anything", lambda arguments: arguments, input_schema={"type": "object"})
    registry = ToolRegistry([log, anything], diagnostics=SILENT)
    assert [registry.invoke(name, {"made_up": "x"}).value for name in registry.ids()] == [{"made_up": "x"}] * 2


# b8: arguments that were cut off

WHOLE = '{"title": "example", "tags": ["a", {"b": null}], "n": -12.5e3, "on": true}'


@pytest.mark.parametrize("size", range(1, len(WHOLE)))
def test_b8_arguments_that_were_cut_off_anywhere_say_so_and_ask_for_less(size):
    error = Spy(Any).refuse(WHOLE[:size])
    (problem,) = error.problems
    assert "cut off" in problem.got
    assert "send less" in problem.hint
    assert f"offset {size}" in problem.got


def test_b8_arguments_that_are_whole_but_wrong_are_not_called_cut_off():
    for text in ('{"title": example}', '{"title": "a" "b"}', '{"title"}', "[1]", '{"a": 1} trailing', "example"):
        assert "cut off" not in Spy(Any).refuse(text).user_message


# b10, b11, b12: characters


@pytest.mark.parametrize("character", [*map(chr, range(32)), "\x7f", "\u2028", "\u2029", "\u00a0"])
def test_b10_raw_control_characters_inside_text_are_taken_as_they_are(character):
    spy = Spy(str)
    assert spy.send(f'{{"x": "a{character}b"}}') == ()
    spy.send(f'{{"x": "a{character}b"}}'.encode())
    assert spy.got == [f"a{character}b"] * 2


def test_b10_what_is_already_escaped_keeps_its_meaning():
    spy = Spy(str)
    spy.send('{"x": "a\\nb"}')
    spy.send('{"x": "a\\\\nb"}')
    spy.send('{"x": "C:\\\\new\n\\"q\\""}')
    assert spy.got == ["a\nb", "a\\nb", 'C:\\new\n"q"']


@pytest.mark.parametrize(
    "text", ['{\\n"x": "a"}', '{"x":\\n"a"}', '{"x": "a",}', "{'x': 'a'}", '{x: "a"}', '{"x": "a"} // why', '```{"x": "a"}```']
)
@pytest.mark.parametrize("repair", [True, False])
def test_b10_text_outside_the_grammar_is_refused_with_its_place_and_never_guessed(text, repair):
    error = Spy(str).refuse(text, repair=repair)
    assert "line 1, column" in error.user_message


def test_b11_surrogate_pairs_are_joined_and_encode_again():
    spy = Spy(str)
    sent = [
        '{"x": "\\ud83c\\udf78"}',
        '{"x": "a\\uD83C\\uDF78b"}',
        json.dumps({"x": "🍸"}),
        '{"x": "🍸"}',
        {"x": "🍸"},
        {"x": "\ud83c\udf78"},
    ]
    for arguments in sent[:5]:
        spy.send(arguments)
    assert spy.got == ["\U0001f378", "a\U0001f378b", "\U0001f378", "\U0001f378", "\U0001f378"]
    assert all(len(text.encode()) >= 4 for text in spy.got)


@pytest.mark.parametrize(
    "text", ['{"x": "\\ud835"}', '{"x": "a\\udf78b"}', '{"x": "\\udf78\\ud83c"}', '{"\\ud835": "x"}', '{"x": "\ud835"}']
)
def test_b12_a_lone_surrogate_in_arguments_is_refused_and_the_refusal_can_be_sent(text):
    error = Spy(str).refuse(text)
    error.user_message.encode()
    assert "surrogate" in error.user_message
    assert "offset" in error.user_message


@pytest.mark.parametrize("arguments", [{"x": "\ud835"}, {"\ud835": "x"}, {"x": ["a", {"b": "\udf78"}]}])
def test_b12_a_lone_surrogate_in_a_mapping_is_refused_as_well(arguments):
    error = Spy(Any).refuse(arguments)
    error.user_message.encode()
    assert "surrogate" in error.user_message


def test_b12_lone_surrogates_in_an_output_are_replaced_flagged_and_keep_going():
    outputs = ["bad \ud835 text", ["\ud835"], {"k\udf78": "v"}, {"deep": [{"x": "\ud835"}]}]

    @tool
    def scrape(n: int) -> Any:
        return outputs[n]

    registry = ToolRegistry([scrape], diagnostics=SILENT)
    for number in range(len(outputs)):
        result = registry.invoke("scrape", {"n": number})
        assert result.text.encode().decode() == result.text
        assert "\ufffd" in result.text
        assert result.invocation.notes == ("surrogates replaced",)
        assert result.invocation.output_digest
        assert result.value is outputs[number]


def test_b12_a_lone_surrogate_in_an_error_for_the_model_is_replaced():
    @tool
    def refuse() -> str:
        raise ToolError("bad \ud835 text")

    reply = asyncio.run(ToolRegistry([refuse], diagnostics=SILENT).answer("refuse", {}))
    assert reply.text.encode().decode().startswith("bad \ufffd text")


# b13: numbers that are none


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(
    "literal",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "nan",
        "1e999",
        "-1e999",
        "1" + "0" * 400,
        '"NaN"',
        '"Infinity"',
        '"-Infinity"',
        '"inf"',
        '"1e999"',
    ],
)
def test_b13_numbers_that_are_not_finite_are_refused_in_every_form(literal, repair):
    for annotation in (Annotated[float, Field(ge=0, le=1)], float, int, float | None, int | float):
        Spy(annotation).refuse(f'{{"x": {literal}}}', repair=repair)
        Spy(list[annotation]).refuse(f'{{"x": [1, {literal}]}}', repair=repair)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "NaN", "Infinity", 10**400])
def test_b13_numbers_that_are_not_finite_are_refused_in_a_mapping_with_their_path(value):
    for annotation in (Annotated[float, Field(ge=0, le=1)], float):
        assert paths(Spy(annotation).refuse({"x": value})) == ["x"]
        assert paths(Spy(list[annotation]).refuse({"x": [1.0, value]})) == ["x[1]"]


def test_b13_a_raw_schema_never_sees_them_either():
    got: list[object] = []
    raw = keeper(got)
    registry = ToolRegistry([raw], diagnostics=SILENT)
    for arguments in ('{"x": NaN}', '{"x": 1e999}', {"x": float("nan")}, {"x": [{"y": float("inf")}]}):
        with pytest.raises(InvalidInputError):
            registry.invoke("raw", arguments)
    assert got == []


# b14, b15: names of tools


def named(*names: str) -> ToolRegistry:
    tools = [Tool(name, lambda arguments, name=name: name, input_schema={"type": "object"}) for name in names]
    return ToolRegistry(tools, diagnostics=SILENT)


async def test_b14_an_invented_name_is_an_answer_with_the_nearest_and_the_available_names():
    registry = named("get_weather", "get_dates", "send_mail")
    with pytest.raises(ToolNotFoundError) as caught:
        await registry.ainvoke("get_date", {}, options=ExecutionOptions(repair=False))
    assert (caught.value.status, caught.value.code, caught.value.nearest[0]) == (404, "tool_not_found", "get_dates")
    reply = await registry.answer("get_datum", {})
    assert reply.is_error
    assert all(name in reply.text for name in registry.ids())
    assert (await registry.answer("send_mail", {})).value == "send_mail"  # and the loop goes on


@pytest.mark.parametrize(
    "name", ["", " ", "zzz", "🍸", "\ud835", "a" * 100_000, None, 5, ["get_weather"], {"name": "x"}, b"get_weather"]
)
async def test_b14_any_name_at_all_is_an_answer_of_bounded_size(name):
    registry = named("get_weather")
    reply = await registry.answer(name, {})
    assert reply.is_error
    assert "get_weather" in reply.text
    assert len(reply.text.encode()) < 1000
    assert reply.invocation.error_code == "tool_not_found"
    json.dumps(reply.invocation.tool).encode()


async def test_b14_outside_an_offer_only_the_offered_names_are_shown():
    registry = named("get_weather", "secret_tool")
    with pytest.raises(ToolNotOfferedError) as caught:
        await registry.ainvoke("secret_tool", {}, tools=["get_weather"])
    assert caught.value.status == 403
    assert "get_weather" in caught.value.user_message
    assert "Nearest: secret_tool" not in caught.value.user_message


def test_b14_thousands_of_tools_keep_the_answer_short_and_quick():
    registry = named(*(f"tool_number_{number}" for number in range(3000)))
    started = time.process_time()
    for number in range(20):
        with pytest.raises(ToolNotFoundError) as caught:
            registry.invoke(f"tool_nummer_{number}", {})
        assert len(caught.value.user_message) < 2000
    assert time.process_time() - started < 20


ODD = [
    "functions.get_weather",
    "function.get_weather",
    "tools.get_weather",
    " get_weather ",
    "get_weather\n",
    "get_weather()",
    "Get-Weather",
    "GET_WEATHER",
    "get weather",
    "get.weather",
    "functions.Get-Weather()",
]


@pytest.mark.parametrize("name", ODD)
async def test_b15_an_odd_spelling_of_one_tool_is_read_as_it_and_named_in_the_receipt(name):
    registry = named("get_weather", "get_date")
    result = await registry.ainvoke(name, {})
    assert result.value == "get_weather"
    assert result.invocation.tool == "get_weather"
    assert result.invocation.repairs == ("name: read as 'get_weather'",)
    with pytest.raises(ToolNotFoundError):
        await registry.ainvoke(name, {}, options=ExecutionOptions(repair=False))


async def test_b15_a_spelling_that_could_be_two_tools_is_refused():
    registry = named("get_weather", "get-weather")
    for name in ("get.weather", "Get_Weather", "functions.get_weather", "get weather"):
        with pytest.raises(ToolNotFoundError) as caught:
            await registry.ainvoke(name, {})
        assert set(caught.value.nearest) == {"get_weather", "get-weather"}
    for name in registry.ids():
        result = await registry.ainvoke(name, {})
        assert (result.value, result.invocation.repairs) == (name, ())


async def test_b15_an_odd_spelling_never_reaches_a_tool_that_was_not_offered():
    registry = named("get_weather", "get_date")
    with pytest.raises(ToolNotOfferedError):
        await registry.ainvoke("functions.get_weather", {}, tools=["get_date"])
    assert (await registry.ainvoke("functions.get_date", {}, tools=["get_date"])).value == "get_date"


async def test_b15_a_tool_whose_own_name_has_a_prefix_is_found_as_written():
    registry = named("functions.get", "get")
    assert (await registry.ainvoke("functions.get", {})).value == "functions.get"
    assert (await registry.ainvoke("get", {})).value == "get"


# b16: batches


@pytest.mark.parametrize("bad", ['{"x": "?"}', "{bad", '{"y": 1}', "", "[1]", '{"x": NaN}', '{"x": 1, "x": 2}'])
async def test_b16_each_call_of_a_batch_is_answered_on_its_own_and_in_order(bad):
    ran = []

    @tool
    async def ok(x: int) -> int:
        ran.append(x)
        await asyncio.sleep(0)
        return x * 10

    registry = ToolRegistry([ok], diagnostics=SILENT)
    replies = await asyncio.gather(*(registry.answer("ok", raw) for raw in ('{"x": 1}', bad, '{"x": 2}')))
    assert [reply.is_error for reply in replies] == [False, True, False]
    assert [reply.value for reply in replies] == [10, None, 20]
    assert ran == [1, 2]


async def test_b16_a_call_that_fails_keeps_none_of_its_siblings_from_ending():
    @tool
    async def work(x: int) -> int:
        await asyncio.sleep(0)
        if x == 1:
            raise ValueError("boom")
        return x

    registry = ToolRegistry([work], diagnostics=SILENT)
    replies = await asyncio.gather(
        *(registry.answer(name, {"x": x}) for name, x in (("work", 0), ("work", 1), ("nope", 2), ("work", 3)))
    )
    assert [reply.value for reply in replies] == [0, None, None, 3]


# b17: what is left of a call with broken arguments


async def test_b17_broken_arguments_leave_a_record_that_can_be_stored_and_the_raw_text_for_debugging():
    reports: list[Any] = []

    async def remember(report: Any) -> None:
        reports.append(report)

    registry = ToolRegistry(
        [Tool("t", lambda arguments: len(arguments), input_schema={})], diagnostics=SILENT, on_tool_error=remember
    )
    broken = ["{bad", '{"a": "\ud835"}', "'single'", b"\xff\xfe", '{"a": 1} {"b": 2}']
    for raw in broken:
        reply = await registry.answer("t", raw, call_context=CallContext(run_id="r"))
        assert reply.is_error
        json.dumps({"role": "tool", "content": reply.text, "id": reply.invocation.invocation_id}).encode()
        assert reply.invocation.status == "failed"
        reply.text.encode()
    for _ in range(100):
        if len(reports) == len(broken):
            break
        await asyncio.sleep(0.01)
    assert [report.input for report in reports] == broken
    assert (await registry.answer("t", "{}")).value == 0


# b19, b20: text or object, and one grammar


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": {"a": 1}},
        {"x": [1, 2.5, "t", None, True, {"deep": ["ü", "🍸"]}]},
        {"x": ""},
        {"x": 10**30},
        {"x": -0.0},
        {"x": 1e-300},
    ],
)
def test_b19_text_and_object_give_the_same_call(arguments):
    forms: list[Any] = [
        arguments,
        MappingProxyType(arguments),
        json.dumps(arguments),
        json.dumps(arguments, ensure_ascii=False),
        json.dumps(arguments, indent=2),
        json.dumps(arguments).encode(),
        bytearray(json.dumps(arguments).encode()),
        "\ufeff" + json.dumps(arguments),
    ]
    digests = set()
    for form in forms:
        got: list[object] = []
        registry = ToolRegistry([keeper(got)], diagnostics=SILENT)
        digests.add(registry.invoke("raw", form).invocation.input_digest)
        assert json.dumps(got) == json.dumps([arguments])
    assert len(digests) == 1


def test_b19_values_of_a_program_are_read_as_their_json_form():
    spy = Spy(date)
    spy.send({"x": date(2026, 1, 2)})
    spy.send('{"x": "2026-01-02"}')
    assert spy.got == [date(2026, 1, 2)] * 2


@pytest.mark.parametrize("wrong", ["[1, 2]", "5", '"text"', "true", [1], 5, True, 1.5, object(), {1, 2}, '"{\\"x\\": 1}"'])
def test_b19_what_is_neither_is_refused(wrong):
    error = Spy(Any).refuse(wrong)
    assert "one JSON object" in error.user_message


NO_JSON = [
    "echo 'it''s'",
    "find . -name \"*.py\" | xargs grep -n 'x: y'",
    "x: 1",
    "x: {y: [1, 2]}",
    "- a\n- b",
    "key: |\n  block",
    "&anchor x",
    "!!python/object/apply:os.system ['true']",
    "<x>1</x>",
    "x = 1",
    "{x}",
    "%YAML 1.2",
    "`x`",
    "\t:",
    "'",
    "@",
]


@pytest.mark.parametrize("text", NO_JSON)
@pytest.mark.parametrize("repair", [True, False])
async def test_b20_text_that_is_no_json_is_a_plain_refusal_and_no_other_grammar_is_tried(text, repair):
    spy = Spy(Any)
    error = spy.refuse(text, repair=repair)
    assert len(error.problems) == 1
    assert "line 1, column" in error.user_message
    reply = await spy.registry.answer("spy", text)
    assert reply.is_error
    assert spy.got == []


@pytest.mark.parametrize(
    ("text", "word"),
    [('{"x": 1, "x": 2}', "x"), ('{"x": {"y": 1, "y": 1}}', "y"), ('{"x": 1} {"x": 2}', "after"), ('{"x": 1}}', "after")],
)
def test_b20_json_that_says_two_things_is_refused_with_the_place(text, word):
    error = Spy(Any).refuse(text)
    assert word in error.user_message
    assert "offset" in error.user_message


def test_b20_deep_nesting_is_a_refusal_too():
    for text in ('{"x": ' * 100_000, '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"):
        assert Spy(Any).refuse(text).status == 400


def test_b20_the_values_of_arguments_are_never_repeated_in_a_refusal():
    secret = "hunter2-the-password"
    for annotation, value in ((int, secret), (list[int], [secret]), (Literal["a"], secret), (date, secret), (bool, secret)):
        assert secret not in Spy(annotation).refuse({"x": value}).user_message
    assert secret not in Spy(Any).refuse(f'{{"x": "{secret}" oops}}').user_message
