"""Rows T1 to T5 of the contract: what a tool is and where it comes from."""

import asyncio
import enum
import functools
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError, dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Optional, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from callgate import (
    DuplicateToolError,
    InvalidInputError,
    InvalidOutputError,
    Tool,
    ToolAnswer,
    ToolContext,
    ToolDefinitionError,
    ToolRegistry,
    tool,
)
from tests.contract.kit import by_ainvoke, by_invoke, failure

ADDENDS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


class AddendsModel(BaseModel):
    a: int
    b: int


class AddendsDict(TypedDict):
    a: int
    b: int


@dataclass
class AddendsClass:
    a: int
    b: int


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(kind="read", timeout_s=5)
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def parse_addends(arguments: dict[str, Any]) -> tuple[int, int]:
    if set(arguments) != {"a", "b"} or not all(type(value) is int for value in arguments.values()):
        raise TypeError("two integers, please; password=hunter2")
    return arguments["a"], arguments["b"]


class AddingObject:
    """A tool in the form of the second source document: an object with an id, a kind and methods."""

    id = "add"
    kind = "read"
    description = "Add two numbers."

    def parse_input(self, arguments: dict[str, Any]) -> tuple[int, int]:
        return parse_addends(arguments)

    def execute(self, pair: tuple[int, int]) -> int:
        return sum(pair)

    def parse_output(self, value: object) -> int:
        if not isinstance(value, int):
            raise TypeError("an integer")
        return value


class Calculator:
    def __init__(self, plus: int = 0) -> None:
        self.plus = plus

    @tool
    def add(self, a: int, b: int) -> int:
        return a + b + self.plus

    @classmethod
    def add_of_class(cls, a: int, b: int) -> int:
        return a + b

    @staticmethod
    def add_static(a: int, b: int) -> int:
        return a + b

    def __call__(self, a: int, b: int) -> int:
        return a + b


def add_three(a: int, b: int, c: int) -> int:
    return a + b + c


async def add_later(pair: AddendsModel) -> int:
    await asyncio.sleep(0)
    return pair.a + pair.b


SOURCES: dict[str, Callable[[], object]] = {
    "a decorated function": lambda: add,
    "a decorated async function": lambda: add_async,
    "a plain function": lambda: lambda_named_add,
    "a bound method": lambda: Calculator().add,
    "a class method": lambda: Calculator.add_of_class,
    "a static method": lambda: Calculator.add_static,
    "a callable object": lambda: Tool.of(Calculator(), name="add"),
    "a partial": lambda: Tool.of(functools.partial(add_three, c=0), name="add"),
    "a pydantic model": lambda: Tool("add", lambda pair: pair.a + pair.b, input=AddendsModel),
    "a TypedDict": lambda: Tool("add", lambda pair: pair["a"] + pair["b"], input=AddendsDict),
    "a dataclass": lambda: Tool("add", lambda pair: pair.a + pair.b, input=AddendsClass),
    "a TypeAdapter": lambda: Tool("add", lambda pair: pair.a + pair.b, input=TypeAdapter(AddendsModel)),
    "a JSON Schema": lambda: Tool("add", lambda pair: pair["a"] + pair["b"], input_schema=ADDENDS),
    "a parse_input": lambda: Tool("add", lambda pair: pair[0] + pair[1], parse_input=parse_addends),
    "an async execute": lambda: Tool("add", add_later, input=AddendsModel),
    "an object with execute": AddingObject,
}


def lambda_named_add(a: int, b: int) -> int:
    return a + b


def registered(source: object) -> tuple[ToolRegistry, Tool[Any, Any]]:
    registry = ToolRegistry([source])
    return registry, registry.list()[0]


# ── T1 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_t1_the_name_is_the_id():
    made = Tool("shop.find", lambda: 1)
    assert (made.name, made.id) == ("shop.find", "shop.find")
    assert ToolRegistry([made]).ids() == ("shop.find",)


def test_t1_the_name_is_unique_in_a_registry():
    with pytest.raises(DuplicateToolError) as caught:
        ToolRegistry([Tool("twin", lambda: 1), Tool("twin", lambda: 2)])
    assert caught.value.tool == "twin"


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "x" * 129, ".", None, 7])
def test_t1_a_name_that_no_model_could_use_is_refused_at_definition(name):
    with pytest.raises(ToolDefinitionError):
        Tool(name, lambda: 1)


@pytest.mark.parametrize("kind", ["read", "write", "danger!", "lesend und schreibend"])
def test_t1_the_registry_never_interprets_the_kind(call, kind):
    result = call(ToolRegistry([Tool("t", lambda: "done", kind=kind)]), "t")
    assert (result.value, result.invocation.kind, result.invocation.status) == ("done", kind, "succeeded")


@pytest.mark.parametrize("kind", ["", None, 3])
def test_t1_a_kind_is_a_word(kind):
    with pytest.raises(ToolDefinitionError):
        Tool("t", lambda: 1, kind=kind)


def test_t1_description_debug_steps_own_limit_and_own_cap_are_kept():
    made = Tool("t", lambda: 1, description="Do it.", debug_steps=["look", "do"], timeout_s=3, max_output_bytes=100)
    assert (made.description, made.options.debug_steps) == ("Do it.", ("look", "do"))
    assert (made.timeout_s, made.max_output_bytes) == (3, 100)


def test_t1_description_and_debug_steps_are_optional():
    made = Tool("t", lambda: 1)
    assert (made.description, made.options.debug_steps) == (None, ())


def test_t1_input_parser_execute_and_output_parser_run_in_this_order(call):
    order = []

    def step(name, result):
        return lambda value: order.append((name, value)) or result

    made = Tool("t", step("execute", "raw"), parse_input=step("in", "parsed"), parse_output=step("out", "checked"))
    result = call(ToolRegistry([made]), "t", {"x": 1})
    assert order == [("in", {"x": 1}), ("execute", "parsed"), ("out", "raw")]
    assert result.value == "checked"


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": float("nan")}, {"timeout_s": True}, {"max_output_bytes": 0},
        {"max_output_bytes": 1.5}, {"max_concurrency": 0}, {"retries": -1}, {"run_in": "elsewhere"}, {"on_oversize": "burn"},
        {"tags": "text"}, {"unheard_of": 1},
    ],
)  # fmt: skip
def test_t1_an_option_that_cannot_be_is_refused_at_definition(options):
    with pytest.raises(ToolDefinitionError) as caught:
        Tool("t", lambda: 1, **options)
    assert caught.value.tool == "t"
    assert next(iter(options)) in str(caught.value)


# ── T2 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_t2_every_source_gives_a_tool_that_runs(call, source):
    registry, made = registered(source())
    result = call(registry, made.name, '{"a": 2, "b": 3}')
    assert (result.value, result.text) == (5, "5")


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_t2_every_source_validates_its_input(call, source):
    registry, made = registered(source())
    error = failure(call, registry, made.name, {"a": [], "b": 3})
    assert isinstance(error, InvalidInputError)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_t2_every_source_ends_in_the_same_frozen_form(source):
    registry, made = registered(source())
    assert type(made) is Tool
    assert registry.get(made.name) is made
    with pytest.raises(FrozenInstanceError):
        made.name = "other"  # type: ignore[misc]


OUTPUTS: dict[str, dict[str, Any]] = {
    "a pydantic model": {"output": AddendsModel},
    "a TypedDict": {"output": AddendsDict},
    "a dataclass": {"output": AddendsClass},
    "a TypeAdapter": {"output": TypeAdapter(AddendsModel)},
    "a JSON Schema": {"output_schema": ADDENDS},
    "a parse_output": {"parse_output": lambda value: parse_addends(value) and value},
}


@pytest.mark.parametrize("form", OUTPUTS.values(), ids=OUTPUTS)
def test_t2_every_form_of_output_lets_the_right_one_pass(call, form):
    result = call(ToolRegistry([Tool("t", lambda: {"a": 1, "b": 2}, **form)]), "t")
    assert result.text == '{"a":1,"b":2}'


@pytest.mark.parametrize("form", OUTPUTS.values(), ids=OUTPUTS)
def test_t2_every_form_of_output_refuses_a_wrong_one(call, form):
    error = failure(call, ToolRegistry([Tool("t", lambda: {"a": 1, "b": "two"}, **form)]), "t")
    assert isinstance(error, InvalidOutputError)


def test_t2_a_decorated_function_can_be_called_as_before():
    assert add(2, 3) == 5
    assert add.__name__ == "add"
    assert Calculator(10).add(2, b=3) == 15


def test_t2_a_decorated_method_is_one_tool_for_each_instance(call):
    assert call(ToolRegistry([Calculator(10).add]), "add", {"a": 1, "b": 2}).value == 13
    assert call(ToolRegistry([Calculator(20).add]), "add", {"a": 1, "b": 2}).value == 23


def test_t2_a_function_that_gives_an_awaitable_is_awaited(call):
    def later(a: int) -> Awaitable[int]:
        return asyncio.sleep(0, a)

    assert call(ToolRegistry([later]), "later", {"a": 4}).value == 4


def test_t2_an_explicit_tool_may_execute_what_has_no_signature_to_read(call):
    registry = ToolRegistry([Tool("add", sum, parse_input=parse_addends)])
    assert call(registry, "add", {"a": 1, "b": 2}).value == 3


@pytest.mark.parametrize("forms", [{"input": AddendsModel, "input_schema": ADDENDS}, {"output": int, "parse_output": int}])
def test_t2_two_forms_for_one_thing_are_refused(forms):
    with pytest.raises(ToolDefinitionError):
        Tool("t", lambda x: x, **forms)


@pytest.mark.parametrize("thing", [None, 7, "add", object(), {"name": "add"}])
def test_t2_what_is_no_tool_is_refused(thing):
    with pytest.raises(ToolDefinitionError):
        ToolRegistry([thing])


# ── T3 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def google(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where to look.
    """
    return city


def numpy(city: str) -> str:
    """Tell the weather.

    Parameters
    ----------
    city : str
        Where to look.
    """
    return city


def sphinx(city: str) -> str:
    """Tell the weather.

    :param city: Where to look.
    """
    return city


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_t3_the_docstring_describes_the_tool_and_its_parameters(function):
    made = Tool.of(function)
    assert made.description == "Tell the weather."
    assert made.input_schema["properties"]["city"]["description"] == "Where to look."


def schema_of(function: Callable[..., Any], parameter: str) -> Any:
    return Tool.of(function).input_schema["properties"][parameter]


def test_t3_annotated_fields_bind_and_describe_a_parameter(call):
    def pages(limit: Annotated[int, Field(ge=1, le=100, description="How many.")]) -> int:
        return limit

    shown = schema_of(pages, "limit")
    assert (shown["type"], shown["minimum"], shown["maximum"], shown["description"]) == ("integer", 1, 100, "How many.")
    assert failure(call, ToolRegistry([pages]), "pages", {"limit": 101}).status == 400
    assert call(ToolRegistry([pages]), "pages", {"limit": 100}).value == 100


def test_t3_a_literal_lists_its_values(call):
    def sort(order: Literal["up", "down"]) -> str:
        return order

    assert schema_of(sort, "order")["enum"] == ["up", "down"]
    assert "'up'" in str(failure(call, ToolRegistry([sort]), "sort", {"order": "sideways"}))


def test_t3_an_enum_is_shown_by_value_and_arrives_as_its_member(call):
    class Colour(enum.Enum):
        RED = "red"
        BLUE = "blue"

    def paint(colour: Colour) -> bool:
        return colour is Colour.BLUE

    assert "blue" in str(Tool.of(paint).input_schema)
    assert call(ToolRegistry([paint]), "paint", {"colour": "blue"}).value is True


def test_t3_a_union_takes_each_of_its_types(call):
    def show(value: int | str | None) -> str:
        return type(value).__name__

    registry = ToolRegistry([show])
    assert [call(registry, "show", {"value": each}).value for each in (1, "1", None)] == ["int", "str", "NoneType"]


def test_t3_nested_models_arrive_as_instances_and_are_described(call):
    class Line(BaseModel):
        price: float = Field(description="In euros.")

    class Order(BaseModel):
        lines: list[Line]

    def total(order: Order) -> float:
        return sum(line.price for line in order.lines)

    registry = ToolRegistry([total])
    assert "In euros." in str(registry.list()[0].input_schema)
    assert call(registry, "total", {"order": {"lines": [{"price": 1.5}, {"price": 2}]}}).value == 3.5


def test_t3_a_default_makes_a_parameter_optional_and_is_the_functions_own(call):
    marker = object()

    def kept(a: int, b: Optional[str] = None, c: Any = marker) -> bool:  # noqa: UP045 - what real signatures have
        return c is marker and b is None

    made = Tool.of(kept)
    assert made.input_schema["required"] == ["a"]
    assert call(ToolRegistry([kept]), "kept", {"a": 1}).value is True


def test_t3_keyword_only_arguments_are_parameters_like_others(call):
    def greet(*, name: str, loud: bool = False) -> str:
        return name.upper() if loud else name

    assert call(ToolRegistry([greet]), "greet", {"name": "ada", "loud": True}).value == "ADA"
    assert failure(call, ToolRegistry([greet]), "greet", {}).problems[0].path == "name"


def test_t3_postponed_annotations_are_resolved(call):
    source = """
    from __future__ import annotations
    def double(point: Point) -> int:
        return point.x * 2
    from pydantic import BaseModel
    class Point(BaseModel):
        x: int
    """
    names: dict[str, Any] = {"__name__": "postponed"}
    exec(compile(textwrap.dedent(source), "postponed.py", "exec"), names)
    assert call(ToolRegistry([names["double"]]), "double", {"point": {"x": 4}}).value == 8


def test_t3_a_decorated_function_may_name_what_is_defined_further_down(call):
    names: dict[str, Any] = {"__name__": "later", "tool": tool}
    exec("@tool\ndef first(point: 'Point') -> int:\n    return point['x']\n", names)
    exec("from typing_extensions import TypedDict\nclass Point(TypedDict):\n    x: int\n", names)
    assert call(ToolRegistry([names["first"]]), "first", {"point": {"x": 4}}).value == 4


class Opaque:
    pass


@pytest.mark.parametrize("annotation", [Opaque, Callable[[int], int], "NoSuchName"], ids=["class", "callable", "unknown"])
def test_t3_a_parameter_that_cannot_be_described_is_refused_by_name(annotation):
    def broken(fine: int, odd: Any) -> None:
        pass

    broken.__annotations__["odd"] = annotation
    with pytest.raises(ToolDefinitionError) as caught:
        Tool.of(broken)
    assert (caught.value.tool, caught.value.parameter) == ("broken", "odd")
    assert "odd" in str(caught.value)


def test_t3_the_decorator_refuses_at_definition():
    with pytest.raises(ToolDefinitionError):

        @tool
        def broken(odd: Opaque) -> None:
            pass


def test_t3_the_context_is_handed_in(call):
    def who(a: int, context: ToolContext) -> tuple[int, str, bool]:
        return a, context.tool, context.invocation_id.startswith("inv_")

    assert call(ToolRegistry([who]), "who", {"a": 1}).value == (1, "who", True)


@pytest.mark.parametrize("annotation", [ToolContext, ToolContext | None, "ToolContext", Annotated[ToolContext, "told"]])
def test_t3_the_context_is_never_shown(annotation):
    def who(a: int, context: Any) -> int:
        return a

    who.__annotations__["context"] = annotation
    made = Tool.of(who)
    assert set(made.input_schema["properties"]) == {"a"}
    assert made.context_parameter == "context"


def test_t3_a_model_that_sends_the_context_is_refused(call):
    def who(a: int, context: ToolContext) -> int:
        return a

    error = failure(call, ToolRegistry([who]), "who", {"a": 1, "context": {}})
    assert [problem.path for problem in error.problems] == ["context"]


def test_t3_an_explicit_tool_gets_the_context_beside_its_input(call):
    def run(pair: AddendsModel, context: ToolContext) -> str:
        return f"{pair.a + pair.b} {context.tool}"

    assert call(ToolRegistry([Tool("t", run, input=AddendsModel)]), "t", {"a": 1, "b": 2}).value == "3 t"


# ── T4 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("attribute", [name for name in Tool.__slots__ if not name.startswith("__")])
def test_t4_no_attribute_of_a_tool_can_be_set(attribute):
    made = Tool("t", lambda: 1)
    with pytest.raises(FrozenInstanceError):
        setattr(made, attribute, None)
    with pytest.raises(FrozenInstanceError):
        delattr(made, attribute)


def test_t4_the_options_of_a_tool_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Tool("t", lambda: 1).options.timeout_s = None  # type: ignore[misc]


def test_t4_changing_the_schema_dict_changes_no_validation(call):
    inner: dict[str, Any] = {"type": "integer"}
    schema: dict[str, Any] = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    registry = ToolRegistry([Tool("t", lambda arguments: arguments["a"], input_schema=schema)])
    inner["type"] = "string"
    schema["required"].clear()
    schema["properties"]["b"] = {}
    assert call(registry, "t", {"a": 1}).value == 1
    assert failure(call, registry, "t", {"a": "x"}).status == 400
    assert failure(call, registry, "t", {}).status == 400
    assert failure(call, registry, "t", {"a": 1, "b": 1}).status == 400


def test_t4_changing_the_output_schema_dict_changes_no_check(call):
    schema: dict[str, Any] = {"type": "integer"}
    registry = ToolRegistry([Tool("t", lambda: "text", output_schema=schema)])
    schema["type"] = "string"
    assert failure(call, registry, "t").status == 502


def test_t4_changing_the_schema_that_a_tool_shows_changes_nothing(call):
    made = Tool("t", lambda arguments: arguments["a"], input_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
    registry = ToolRegistry([made])
    made.input_schema["properties"]["a"]["type"] = "string"
    assert made.input_schema["properties"]["a"]["type"] == "integer"
    assert failure(call, registry, "t", {"a": "x"}).status == 400


def test_t4_changing_a_tools_parser_in_place_changes_no_repair(call):
    made = Tool("t", lambda arguments: arguments["a"], input_schema={"type": "object", "properties": {"a": {"type": "array"}}})
    registry = ToolRegistry([made])
    made.input.schema["properties"]["a"]["type"] = "string"  # type: ignore[index]
    assert call(registry, "t", {"a": "[1]"}).value == [1]


def test_t4_forcing_another_function_or_parser_into_a_registered_tool_changes_nothing(call):
    made = Tool("t", lambda pair: pair.a + pair.b, input=AddendsModel, output=int)
    registry = ToolRegistry([made])
    other = Tool("t", lambda x: "other", parse_input=lambda arguments: arguments, parse_output=lambda value: value)
    for part in ("function", "input", "output", "call"):
        object.__setattr__(made, part, getattr(other, part))
    assert call(registry, "t", {"a": 1, "b": 2}).value == 3
    assert failure(call, registry, "t", {"a": 1}).status == 400


def test_t4_changing_an_objects_methods_after_registration_changes_nothing(call):
    source = AddingObject()
    registry = ToolRegistry([source])
    source.execute = lambda pair: "other"  # type: ignore[method-assign,assignment,return-value]
    source.parse_input = lambda arguments: arguments  # type: ignore[method-assign,assignment,return-value]
    source.parse_output = lambda value: value  # type: ignore[method-assign,assignment,return-value]
    source.id = "renamed"
    source.kind = "write"
    source.description = "Other."
    result = call(registry, "add", {"a": 1, "b": 2})
    assert (result.value, result.invocation.kind) == (3, "read")
    assert registry.require("add").description == "Add two numbers."
    assert failure(call, registry, "add", {"a": "x"}).status == 400


def test_t4_changing_an_objects_output_parser_after_registration_changes_nothing(call):
    class Odd(AddingObject):
        def execute(self, pair: tuple[int, int]) -> Any:
            return "no integer"

    source = Odd()
    registry = ToolRegistry([source])
    source.parse_output = lambda value: value  # type: ignore[method-assign,assignment,return-value]
    assert failure(call, registry, "add", {"a": 1, "b": 2}).status == 502


def test_t4_changing_the_class_of_an_object_after_registration_changes_nothing(call, monkeypatch):
    registry = ToolRegistry([AddingObject()])
    monkeypatch.setattr(AddingObject, "execute", lambda self, pair: "other")
    monkeypatch.setattr(AddingObject, "parse_input", lambda self, arguments: (0, 0))
    assert call(registry, "add", {"a": 1, "b": 2}).value == 3


def test_t4_changing_lists_that_a_definition_was_given_changes_nothing():
    tags, steps = {"one"}, ["look"]
    made = Tool("t", lambda: 1, tags=tags, debug_steps=steps)
    tags.add("two")
    steps.append("do")
    assert (made.tags, made.options.debug_steps) == (frozenset({"one"}), ("look",))


def test_t4_changing_a_functions_annotations_after_registration_changes_nothing(call):
    def show(a: int) -> int:
        return a

    registry = ToolRegistry([show])
    show.__annotations__["a"] = str
    show.__doc__ = "Other."
    assert failure(call, registry, "show", {"a": "x"}).status == 400
    assert registry.require("show").description is None


def test_t4_replacing_a_method_on_its_instance_changes_nothing(call):
    calculator = Calculator()
    registry = ToolRegistry([calculator.add])
    calculator.add = lambda a, b: -1  # type: ignore[method-assign,assignment]
    assert call(registry, "add", {"a": 1, "b": 2}).value == 3


def test_t4_a_tool_brought_by_a_call_is_bound_as_well(call):
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    brought = Tool("guest", lambda arguments: arguments["a"], input_schema=schema)
    registry = ToolRegistry([add])
    assert call(registry, "guest", {"a": 1}, tools=[brought]).value == 1
    schema["properties"]["a"]["type"] = "string"
    assert failure(call, registry, "guest", {"a": "x"}, tools=[brought]).status == 400


# ── T5 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_t5_a_tool_is_generic_in_its_input_and_its_output():
    alias = Tool[AddendsModel, int]
    assert (get_origin(alias), get_args(alias)) == (Tool, (AddendsModel, int))


def test_t5_a_tool_can_be_made_with_its_types_written_out(call):
    made = Tool[AddendsModel, int]("t", lambda pair: pair.a, input=AddendsModel)
    assert call(ToolRegistry([made]), "t", {"a": 1, "b": 2}).value == 1


def test_t5_an_answer_can_be_made_with_its_type_written_out(call):
    assert call(ToolRegistry([Tool("t", lambda: ToolAnswer[int](1, text="one"))]), "t").text == "one"


@pytest.mark.parametrize("door", [by_invoke, by_ainvoke])
def test_t5_the_registry_takes_tools_of_any_types_side_by_side(door):
    first: Tool[AddendsModel, int] = Tool("first", lambda pair: pair.a, input=AddendsModel)
    second: Tool[AddendsDict, str] = Tool("second", lambda pair: str(pair["b"]), input=AddendsDict)
    registry = ToolRegistry([first, second])
    assert [door(registry, name, {"a": 1, "b": 2}).value for name in registry.ids()] == [1, "2"]


AUTHOR = """
from pydantic import BaseModel
from callgate import Tool, ToolRegistry, tool

class Args(BaseModel):
    a: int

def run(args: Args) -> int:
    return args.a

def run_text(args: str) -> int:
    return len(args)

@tool
def decorated(a: int) -> int:
    return a

right: Tool[Args, int] = Tool("right", run, input=Args)
ToolRegistry([right, decorated])
reveal_type(decorated(1))
{line}
"""


def judged(line: str, folder: Any) -> str:
    file = folder / "author.py"
    file.write_text(AUTHOR.format(line=line))
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--config-file=", "--follow-imports=silent", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False).stdout


needs_mypy = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy judges the types")


@needs_mypy
def test_t5_right_types_pass_and_a_decorated_function_keeps_its_own(tmp_path):
    said = judged("", tmp_path)
    assert "error:" not in said
    assert 'Revealed type is "int"' in said.replace("builtins.", "")


@needs_mypy
def test_t5_a_function_of_other_types_is_no_tool_of_these(tmp_path):
    said = judged('wrong = Tool[Args, int]("wrong", run_text, input=Args)', tmp_path)
    assert "error:" in said, f"a function of text was taken for Tool[Args, int]:\n{said}"
