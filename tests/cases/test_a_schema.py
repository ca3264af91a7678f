"""Cases a1 to a33: what real signatures hold becomes a schema that is true, and arguments that are what the annotations say."""

import functools
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict, Union, Unpack
from uuid import UUID

import pytest
import typing_extensions
from annotated_types import Ge, Le, Len
from pydantic import BaseModel, Field

from callgate import (
    DuplicateToolError,
    ExecutionOptions,
    InvalidInputError,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolRegistry,
    tool,
)
from callgate.diagnostics import DiagnosticContext

SILENT = DiagnosticContext()


def run(thing: object, arguments: object, *, repair: bool = True) -> Any:
    """Call a tool by the name that it has, and give what the program gets."""
    return called(thing, arguments, repair=repair).value


def called(thing: object, arguments: object, *, repair: bool = True) -> Any:
    registry = ToolRegistry([thing], diagnostics=SILENT)
    return registry.invoke(registry.ids()[0], arguments, options=ExecutionOptions(repair=repair))


def refusal(thing: object, arguments: object, *, repair: bool = True) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        run(thing, arguments, repair=repair)
    return caught.value


def paths(error: InvalidInputError) -> list[str]:
    return [problem.path for problem in error.problems]


def schema_of(thing: object) -> dict[str, Any]:
    return ToolRegistry([thing]).list()[0].input_schema


def properties(thing: object) -> dict[str, Any]:
    return schema_of(thing)["properties"]


def required(thing: object) -> list[str]:
    return schema_of(thing).get("required", [])


def with_type(annotation: Any, default: Any = inspect.Parameter.empty) -> Callable[..., Any]:
    """Make a function with one parameter `x` of a type that is only known at run time; it gives back what it got."""

    def f(x):
        return x

    f.__annotations__ = {"x": annotation}
    if default is not inspect.Parameter.empty:
        f.__defaults__ = (default,)
    return f


@pytest.fixture
def module_of(monkeypatch):
    """Make modules of source text, so that each test has a module whose names are its own."""

    def make(source: str, name: str = "module_under_test") -> ModuleType:
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(dedent(source), f"<{name}>", "exec"), module.__dict__)
        return module

    return make


# a1, a2: optional parameters


@pytest.mark.parametrize("inner", [int, str, list[int], dict[str, int], Literal["a", "b"], UUID])
def test_a1_every_spelling_of_an_optional_type_gives_the_same_schema(inner):
    spellings = [Optional[inner], Union[inner, None], inner | None]  # noqa: UP007, UP045 - the spellings are the point
    schemas = [schema_of(with_type(spelling, None)) for spelling in spellings]
    assert schemas[0] == schemas[1] == schemas[2]
    assert {"type": "null"} in schemas[0]["properties"]["x"]["anyOf"]


def test_a1_the_spellings_are_equal_inside_other_types_and_as_text():
    wrapped = [list[Optional[int]], list[int | None], list[Union[None, int]], "list[int | None]", "list[Optional[int]]"]  # noqa: UP007, UP045
    for spelling in wrapped:
        assert run(with_type(spelling), {"x": [1, None]}) == [1, None]
        assert paths(refusal(with_type(spelling), {"x": [1, "?"]})) == ["x[1]"]


@pytest.mark.parametrize("annotation", [Optional[int], int | None, None | int, Annotated[int | None, Field(description="n")]])  # noqa: UP045
def test_a1_an_optional_parameter_takes_a_value_null_or_nothing(annotation):
    f = with_type(annotation, None)
    assert [run(f, arguments) for arguments in ({"x": 5}, {"x": None}, {})] == [5, None, None]
    assert paths(refusal(f, {"x": "five"})) == ["x"]


class Settings(BaseModel):
    depth: int = 1


NOTHING = object()


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (list[str] | None, None),
        (dict[str, Any], {}),
        (Any, None),
        (Settings, Settings()),
        (Settings | None, None),
        (int, NOTHING),
        (Annotated[int, Field(ge=1)], 3),
        (tuple[int, ...], ()),
        (Path, Path()),
        (Callable[[], int] | None, None),
    ],
)
def test_a2_one_awkward_parameter_leaves_the_requiredness_of_the_others_alone(annotation, default):
    def find(query, awkward, limit=10):
        return [query, limit]

    find.__annotations__ = {"query": str, "awkward": annotation, "limit": int}
    find.__defaults__ = (default, 10)
    if "Callable" in str(annotation):
        with pytest.raises(ToolDefinitionError) as caught:
            Tool.of(find)
        assert caught.value.parameter == "awkward"  # refused with its name; never a schema that forgets the others
        return
    assert required(find) == ["query"]
    assert run(find, {"query": "q"}) == ["q", 10]
    assert paths(refusal(find, {"limit": 1})) == ["query"]


def test_a2_required_keyword_only_and_positional_only_parameters_stay_required():
    def find(first: str, /, second: str, *, third: str, fourth: str = "d") -> list[str]:
        return [first, second, third, fourth]

    assert required(find) == ["first", "second", "third"]
    assert run(find, {"first": "a", "second": "b", "third": "c"}) == ["a", "b", "c", "d"]


# a4, a5: annotations as text


def test_a4_postponed_annotations_are_resolved_in_the_module_of_the_function(module_of):
    module = module_of("""
        from __future__ import annotations
        from enum import Enum
        from pathlib import Path
        from typing import Literal
        from callgate import tool, ToolContext

        class Currency(Enum):
            EUR = "eur"

        @tool
        def pick(m: Literal['a', 'b'], p: Path, ctx: ToolContext, c: Currency | None = None) -> list:
            return [m, p, c, ctx.tool]
    """)
    assert set(properties(module.pick)) == {"m", "p", "c"}
    assert run(module.pick, {"m": "a", "p": "x/y", "c": "eur"}) == ["a", Path("x/y"), module.Currency.EUR, "pick"]
    assert paths(refusal(module.pick, {"m": "c", "p": "x"})) == ["m"]


def test_a4_a_name_means_what_it_means_where_the_function_was_written(module_of):
    module_of("""
        from __future__ import annotations
        from pydantic import BaseModel
        class Item(BaseModel):
            there: int
        def take(item: Item) -> str:
            return type(item).__module__
    """, "module_there")  # fmt: skip
    here = module_of("""
        import functools
        from pydantic import BaseModel
        from module_there import take
        class Item(BaseModel):
            here: int
        @functools.wraps(take)
        def wrapped(*args, **kwargs):
            return take(*args, **kwargs)
        bound = functools.partial(take)
    """, "module_here")  # fmt: skip
    for function in (here.take, here.wrapped, here.bound):
        assert run(function, {"item": {"there": 1}}) == "module_there"
        assert paths(refusal(function, {"item": {"here": 1}})) == ["item.there", "item.here"]


def test_a4_a_type_that_is_defined_after_the_decorated_function_is_found_at_registration(module_of):
    module = module_of("""
        from __future__ import annotations
        from callgate import tool
        from pydantic import BaseModel

        @tool
        def save(line: Line, more: dict[str, list[Line]]) -> str:
            return type(line).__name__ + type(more["a"][0]).__name__

        class Line(BaseModel):
            n: int
    """)
    assert run(module.save, {"line": {"n": 1}, "more": {"a": [{"n": 2}]}}) == "LineLine"


def test_a4_types_that_are_local_to_a_function_are_found():
    class Local(BaseModel):
        n: int

    @tool
    def save(line: "Local") -> str:
        return type(line).__name__

    assert run(save, {"line": {"n": 1}}) == "Local"


@pytest.mark.parametrize(
    ("annotation", "missing"),
    [
        ("FilePath", "FilePath"),
        ("list[FilePath]", "FilePath"),
        ("dict[str, FilePath | None]", "FilePath"),
        (list["FilePath"], "FilePath"),  # noqa: F821 - the name is missing on purpose
        (Optional["FilePath"], "FilePath"),  # noqa: F821 - the name is missing on purpose
        ("pathlib.Path", "pathlib"),
    ],
)
def test_a5_an_unknown_name_is_refused_at_registration_with_tool_parameter_and_name(annotation, missing):
    def load(count, p):
        return "never"

    load.__annotations__ = {"count": int, "p": annotation}
    register = [
        Tool.of,
        ToolRegistry().register,
        lambda function: ToolRegistry([tool(function)]),
        lambda function: ToolRegistry().offer([function]),
    ]
    for way in register:
        with pytest.raises(ToolDefinitionError) as caught:
            way(load)
        assert (caught.value.tool, caught.value.parameter) == ("load", "p")
        assert repr(missing) in str(caught.value)
        assert "'load'" in str(caught.value)


def test_a5_a_name_that_is_imported_for_type_checkers_only_is_refused(module_of):
    module = module_of("""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from callgate import tool
        if TYPE_CHECKING:
            from decimal import Decimal

        @tool
        def pay(amount: Decimal) -> str:
            return "paid"
    """)
    registry = ToolRegistry()
    with pytest.raises(ToolDefinitionError, match=r"'amount'.*'Decimal'"):
        registry.register(module.pay)
    assert len(registry) == 0


# a6, a8, a9: recursion and references


class Node(BaseModel):
    v: int
    kids: list["Node"] = []


class Chain(BaseModel):
    nxt: Annotated["Chain", Field(description="the next link")] | None = None
    label: str = ""


class Inner(BaseModel):
    n: int


def test_a6_a_recursive_model_keeps_its_references_and_is_built_to_any_depth():
    @tool
    def grow(root: Node) -> Node:
        return root

    assert properties(grow)["root"] == {"$ref": "#/$defs/Node"}
    assert schema_of(grow)["$defs"]["Node"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/Node"}
    value: dict[str, Any] = {"v": 40}
    for depth in reversed(range(40)):
        value = {"v": depth, "kids": [value]}
    node = run(grow, {"root": value})
    for depth in range(40):
        assert (type(node), node.v) == (Node, depth)
        node = node.kids[0]


def test_a6_a_fault_deep_in_a_recursive_value_is_named_by_its_path():
    @tool
    def grow(root: Node) -> str:
        return "grown"

    error = refusal(grow, {"root": {"v": 1, "kids": [{"v": 2}, {"v": 3, "kids": [{"v": "x", "kid": []}]}]}})
    assert paths(error) == ["root.kids[1].kids[0].v", "root.kids[1].kids[0].kid"]


def test_a6_models_that_refer_to_each_other_and_recursive_raw_schemas_work_as_well(module_of):
    module = module_of("""
        from pydantic import BaseModel
        class Folder(BaseModel):
            files: list["File"] = []
        class File(BaseModel):
            inside: Folder | None = None
        Folder.model_rebuild()
        def walk(folder: Folder) -> str:
            return type(folder.files[0].inside).__name__
    """)
    assert run(module.walk, {"folder": {"files": [{"inside": {}}]}}) == "Folder"
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "v": {"type": "integer"}},
        "required": ["v"],
    }
    raw = Tool("raw", lambda arguments: arguments, input_schema=tree)
    assert run(raw, {"v": 1, "kids": [{"v": 2, "kids": []}]}) == {"v": 1, "kids": [{"v": 2, "kids": []}]}
    assert paths(refusal(raw, {"v": 1, "kids": [{"v": 2, "kids": [{}]}]})) == ["kids[0].kids[0].v"]


def test_a8_a_described_recursive_field_is_registered_with_its_description_beside_the_reference():
    @tool
    def follow(first: Chain) -> list[str]:
        labels, link = [], first
        while link is not None:
            labels.append(link.label)
            link = link.nxt
        return labels

    branches = schema_of(follow)["$defs"]["Chain"]["properties"]["nxt"]["anyOf"]
    assert {"$ref": "#/$defs/Chain", "description": "the next link"} in branches
    assert run(follow, {"first": {"label": "a", "nxt": {"label": "b", "nxt": {"label": "c"}}}}) == ["a", "b", "c"]
    assert paths(refusal(follow, {"first": {"nxt": {"nxt": 5}}})) == ["first.nxt.nxt"]


DEEP = lambda value: value[0]["k"][1]  # noqa: E731 - one of five like it
PLACES = {
    "by_id": (dict[str, Inner], {"a": {"n": 1}}, {"a": {"n": "x"}}, "by_id.a.n", lambda value: value["a"]),
    "pair": (tuple[Inner, Inner], [{"n": 1}, {"n": 2}], [{"n": 1}, {"n": "x"}], "pair[1].n", lambda value: value[1]),
    "many": (tuple[Inner, ...], [{"n": 1}], [{"n": 1}, {}], "many[1].n", lambda value: value[0]),
    "deep": (list[dict[str, tuple[int, Inner]]], [{"k": [1, {"n": 2}]}], [{"k": [1, {}]}], "deep[0].k[1].n", DEEP),
    "maybe": (dict[str, Inner | None], {"a": {"n": 1}, "b": None}, {"a": {"n": None}}, "maybe.a.n", lambda value: value["a"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_a9_references_in_mapping_values_and_tuples_are_resolved_checked_and_built(name):
    annotation, good, bad, path, pick = PLACES[name]

    def f(x):
        return x

    f.__annotations__ = {"x": annotation}
    schema = json.dumps(schema_of(f))
    assert '"$ref": "#/$defs/Inner"' in schema
    assert schema_of(f)["$defs"]["Inner"]["properties"]["n"] == {"type": "integer"}
    assert type(pick(run(f, {"x": good}))) is Inner
    assert paths(refusal(f, {"x": bad})) == [path.replace(name, "x", 1)]


# a10, a11, a12, a13: everything callable


def greet(name: str, greeting: str, mark: str = "!") -> str:
    """Greet somebody.

    Args:
        name: Who.
        greeting: How.
    """
    return f"{greeting} {name}{mark}"


def update_wrapped(*args: Any, **kwargs: Any) -> Any:
    made = functools.partial(greet, *args, **kwargs)
    return functools.update_wrapper(made, greet)


@pytest.mark.parametrize(
    ("partial", "left", "expected"),
    [
        (functools.partial(greet, greeting="Hello"), {"name", "mark"}, "Hello Ada!"),
        (functools.partial(greet, greeting="Hello", mark="?"), {"name"}, "Hello Ada?"),
        (functools.partial(functools.partial(greet, greeting="Hi"), mark="."), {"name"}, "Hi Ada."),
        (update_wrapped(greeting="Hello"), {"name", "mark"}, "Hello Ada!"),
    ],
)
def test_a10_a_partial_shows_what_is_left_to_bind_and_nothing_else(partial, left, expected):
    made = Tool.of(partial)
    assert (made.name, made.description) == ("greet", "Greet somebody.")
    assert set(made.input_schema["properties"]) == left
    assert made.input_schema["properties"]["name"]["description"] == "Who."
    assert run(partial, {"name": "Ada"}) == expected
    for bound in {"greeting", "mark"} - left:
        error = refusal(partial, {"name": "Ada", bound: "evil"})
        assert paths(error) == [bound]


def test_a10_what_a_partial_binds_by_position_is_hidden_as_well():
    partial = functools.partial(greet, "Ada")
    assert set(properties(partial)) == {"greeting", "mark"}
    assert run(partial, {"greeting": "Hey"}) == "Hey Ada!"
    assert paths(refusal(partial, {"name": "Eve", "greeting": "Hey"})) == ["name"]


def test_a10_a_bound_keyword_cannot_be_overridden_through_open_keywords():
    def send(text: str, *, key: str = "", **rest: str) -> dict[str, str]:
        return {"text": text, "key": key, **rest}

    partial = functools.partial(send, key="secret")
    assert run(partial, {"text": "t", "other": "o"}) == {"text": "t", "key": "secret", "other": "o"}
    assert paths(refusal(partial, {"text": "t", "key": "evil"})) == ["key"]


def test_a10_partials_of_methods_and_async_functions_work():
    class Greeter:
        async def greet(self, name: str, greeting: str) -> str:
            return f"{greeting} {name}"

    partial = functools.partial(Greeter().greet, greeting="Ahoy")
    assert Tool.of(partial).is_async
    assert run(partial, {"name": "Ada"}) == "Ahoy Ada"


class Finder:
    """Find things."""

    def __init__(self, found: str) -> None:
        self.found = found

    async def __call__(self, ctx: ToolContext, q: str) -> str:
        return f"{ctx.tool}:{q}:{self.found}"


class Adder:
    def __call__(self, a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b


def test_a11_a_callable_object_hides_its_context_and_takes_the_name_of_its_class():
    made = Tool.of(Finder("one"))
    assert (made.name, made.description, made.is_async) == ("Finder", "Find things.", True)
    assert list(made.input_schema["properties"]) == ["q"]
    assert run(Finder("one"), {"q": "x"}) == "Finder:x:one"
    assert paths(refusal(Finder("one"), {"q": "x", "ctx": "evil"})) == ["ctx"]


def test_a11_sync_objects_explicit_names_and_two_instances_of_a_class_work():
    assert Tool.of(Adder()).description == "Add two numbers."
    assert run(Adder(), {"a": 2}) == 3
    registry = ToolRegistry([Tool.of(Finder("one"), name="first"), Tool.of(Finder("two"), name="second")])
    assert [registry.invoke(name, {"q": "x"}).value for name in registry.ids()] == ["first:x:one", "second:x:two"]


class Calculator:
    base = 100

    def __init__(self, start: int) -> None:
        self.start = start

    @tool(kind="read")
    def add(self, x: int, y: int) -> int:
        """Add to the start."""
        return self.start + x + y

    @tool
    @staticmethod
    def double(x: int) -> int:
        return 2 * x

    @tool
    @classmethod
    def above(cls, x: int) -> int:
        return cls.base + x

    @staticmethod
    @tool
    def half(x: int) -> float:
        return x / 2

    def plain(self, x: int) -> int:
        return self.start - x


def test_a12_bound_static_and_class_methods_are_tools_without_self():
    calculator = Calculator(10)
    things = [
        calculator.add,
        calculator.double,
        calculator.above,
        calculator.half,
        calculator.plain,
        Calculator.above,
        Calculator.double,
    ]
    for thing in things:
        assert set(properties(thing)) <= {"x", "y"}, thing
    assert run(calculator.add, {"x": 1, "y": 2}) == 13
    assert run(calculator.double, {"x": 4}) == 8
    assert run(calculator.above, {"x": 4}) == run(Calculator.above, {"x": 4}) == 104
    assert run(calculator.half, {"x": 3}) == 1.5
    assert run(calculator.plain, {"x": 4}) == 6
    assert Tool.of(calculator.plain).name == "plain"
    assert ToolRegistry([calculator.add]).require("add").kind == "read"


def test_a12_each_instance_has_its_own_tool():
    first, second = ToolRegistry([Calculator(1).add]), ToolRegistry([Calculator(2).add])
    assert [registry.invoke("add", {"x": 0, "y": 0}).value for registry in (first, second)] == [1, 2]


def test_a12_an_unbound_method_is_refused_with_advice():
    for thing in (Calculator.add, Calculator.plain):
        registry = ToolRegistry()
        with pytest.raises(ToolDefinitionError) as caught:
            registry.register(thing)
        assert "self" in str(caught.value) or "instance" in str(caught.value)
        assert len(registry) == 0


def test_a12_a_function_with_an_explicit_input_needs_no_signature():
    got: list[Any] = []
    for execute in (got.append, print, len, str.upper, dict):
        made = Tool("explicit", execute, input_schema={"type": "object"})
        assert made.context_parameter is None
    run(Tool("explicit", got.append, input_schema={"type": "object"}), {"a": 1})
    assert got == [{"a": 1}]
    assert run(Tool("explicit", len, input_schema={"type": "object"}), {"a": 1, "b": 2}) == 2


def test_a13_a_decorated_function_is_the_very_function_that_it_was():
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert tool(add) is add
    assert tool(kind="read", timeout_s=5)(add) is add
    assert add(1, 2) == add(a=1, b=2) == 3
    assert (add.__name__, add.__doc__, inspect.isfunction(add)) == ("add", "Add.", True)
    assert list(inspect.signature(add).parameters) == ["a", "b"]


async def test_a13_decorated_async_functions_generators_and_methods_are_called_as_before():
    @tool
    async def later(a: int) -> int:
        return a + 1

    @tool
    def many(n: int):
        yield from range(n)

    assert inspect.iscoroutinefunction(later)
    assert await later(1) == 2
    assert list(many(3)) == [0, 1, 2]
    assert Calculator(5).add(1, 2) == 8
    assert Calculator.add(Calculator(5), 1, 2) == 8
    assert (Calculator.double(4), Calculator(1).above(4)) == (8, 104)


# a14, a16: names of parameters


def test_a14_leading_underscore_names_are_kept_as_written():
    @tool
    def read(_path: str, __top: int = 5) -> list[object]:
        return [_path, __top]

    assert list(properties(read)) == ["_path", "__top"]
    assert required(read) == ["_path"]
    assert run(read, {"_path": "p", "__top": 7}) == ["p", 7]
    assert run(read, {"_path": "p"}) == ["p", 5]
    assert paths(refusal(read, {"__top": "x"})) == ["_path", "__top"]


AWKWARD_NAMES = [
    "model_config",
    "model_fields",
    "copy",
    "json",
    "dict",
    "schema",
    "validate",
    "_",
    "cls",
    "kwargs",
    "class_",
    "Type",
    "größe",
]


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_a14_names_that_mean_something_to_a_library_are_names_like_others(name):
    names: dict[str, Any] = {}
    exec(f"def f({name}: int, {name}_2: int = 2) -> list:\n    return [{name}, {name}_2]", names)
    f = names["f"]
    assert list(properties(f)) == [name, f"{name}_2"]
    assert run(f, {name: 1}) == [1, 2]
    error = refusal(f, {name: "x"})
    assert paths(error) == [name]
    assert f"{name}: expected an integer" in error.user_message


def test_a16_positional_rest_is_refused_at_definition():
    def f(x: int, *rest: str) -> str:
        return ""

    def bare(*args) -> str:
        return ""

    for function, parameter in ((f, "rest"), (bare, "args")):
        with pytest.raises(ToolDefinitionError) as caught:
            tool(function)
        assert (caught.value.tool, caught.value.parameter) == (function.__name__, parameter)


def test_a16_open_keywords_are_passed_as_keywords_of_their_type():
    @tool
    def f(x: int, **kw: str) -> dict[str, object]:
        return {"x": x, "kw": kw}

    assert schema_of(f)["additionalProperties"] == {"type": "string"}
    assert (list(properties(f)), required(f)) == (["x"], ["x"])
    assert run(f, {"x": 1}) == {"x": 1, "kw": {}}
    assert run(f, {"x": 1, "a": "b", "odd name": "c"}) == {"x": 1, "kw": {"a": "b", "odd name": "c"}}
    assert paths(refusal(f, {"x": 1, "a": 5})) == ["a"]


def test_a16_open_keywords_may_have_any_type_and_need_one():
    @tool
    def typed(**lines: Inner) -> list[str]:
        return [type(line).__name__ for line in lines.values()]

    assert run(typed, {"a": {"n": 1}, "b": {"n": 2}}) == ["Inner", "Inner"]
    assert paths(refusal(typed, {"a": {"n": "x"}})) == ["a.n"]

    def untyped(x: int, **kw) -> str:
        return ""

    with pytest.raises(ToolDefinitionError) as caught:
        tool(untyped)
    assert caught.value.parameter == "kw"


def test_a16_unpacked_keywords_are_parameters():
    class Where(TypedDict):
        city: str
        zip: NotRequired[str]

    @tool
    def ship(weight: int, **where: Unpack[Where]) -> dict[str, object]:
        return dict(where)

    assert (set(properties(ship)), set(required(ship))) == ({"weight", "city", "zip"}, {"weight", "city"})
    assert run(ship, {"weight": 1, "city": "Ulm"}) == {"city": "Ulm"}
    assert paths(refusal(ship, {"weight": 1, "town": "Ulm"})) == ["city", "town"]


# a17, a18, a19: optional, null, unions with a tag


def test_a17_the_neutral_schema_keeps_defaults_and_requires_nothing_that_has_one():
    @tool
    def v(major: int | None = None, loc: str = "") -> list[object]:
        return [major, loc]

    assert required(v) == []
    assert (properties(v)["major"]["default"], properties(v)["loc"]["default"]) == (None, "")
    assert run(v, {}) == [None, ""]


def test_a17_null_for_a_parameter_with_another_default_becomes_that_default_and_is_named():
    @tool
    def v(major: int = 3, loc: str = "here") -> list[object]:
        return [major, loc]

    result = called(v, {"major": None, "loc": None})
    assert result.value == [3, "here"]
    assert [repair.partition(":")[0] for repair in result.invocation.repairs] == ["major", "loc"]
    assert paths(refusal(v, {"major": None}, repair=False)) == ["major"]


class Car(BaseModel):
    kind: Literal["car"]
    doors: int


class Bike(BaseModel):
    kind: Literal["bike"]
    gear: int | None = None


def test_a18_a_tagged_union_is_validated_by_its_tag_alone():
    @tool
    def buy(v: Annotated[Car | Bike, Field(discriminator="kind")]) -> str:
        return type(v).__name__

    assert run(buy, {"v": {"kind": "car", "doors": 4}}) == "Car"
    assert run(buy, {"v": {"kind": "bike"}}) == "Bike"
    assert paths(refusal(buy, {"v": {"kind": "car", "doors": "x"}})) == ["v.doors"]
    assert paths(refusal(buy, {"v": {"kind": "bike", "doors": 4}})) == ["v.doors"]
    unknown = refusal(buy, {"v": {"kind": "boat"}}).problems
    assert [problem.path for problem in unknown] == ["v.kind"]
    assert "car" in unknown[0].expected
    assert "bike" in unknown[0].expected
    assert paths(refusal(buy, {"v": {"doors": 4}})) == ["v.kind"]


def test_a18_tagged_unions_inside_lists_and_mappings_are_named_by_their_place():
    @tool
    def buy(all: list[Annotated[Car | Bike, Field(discriminator="kind")]]) -> list[str]:  # noqa: A002
        return [type(each).__name__ for each in all]

    assert run(buy, {"all": [{"kind": "bike"}, {"kind": "car", "doors": 2}]}) == ["Bike", "Car"]
    assert paths(refusal(buy, {"all": [{"kind": "bike"}, {"kind": "car"}]})) == ["all[1].doors"]


class Prio(IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize("inner", [Prio, int, str, list[int], Inner])
def test_a19_required_comes_from_the_default_and_null_from_the_type(inner):
    sample = {Prio: 1, int: 1, str: "s", list[int]: [1], Inner: {"n": 1}}[inner]
    for nullable in (False, True):
        for has_default in (False, True):
            annotation = inner | None if nullable else inner
            f = with_type(annotation, "the default") if has_default else with_type(annotation)
            assert required(f) == ([] if has_default else ["x"])
            assert ('"null"' in json.dumps(properties(f)["x"])) == nullable
            run(f, {"x": sample}, repair=False)
            if nullable:
                assert run(f, {"x": None}, repair=False) is None
            else:
                assert paths(refusal(f, {"x": None}, repair=False)) == ["x"]
            if has_default:
                assert run(f, {}, repair=False) == "the default"
            else:
                assert paths(refusal(f, {}, repair=False)) == ["x"]


# a20: factories


@pytest.mark.parametrize("form", ["default", "annotated"])
def test_a20_a_default_factory_runs_once_for_each_call_and_shares_nothing(form):
    made = []

    def fresh() -> list[str]:
        made.append(1)
        return []

    if form == "default":

        def add(items: list[str] = Field(default_factory=fresh, description="x")) -> list[str]:  # noqa: B008 - as authors do
            items.append("mine")
            return items
    else:

        def add(items: Annotated[list[str], Field(default_factory=fresh, description="x")]) -> list[str]:
            items.append("mine")
            return items

    registry = ToolRegistry([add], diagnostics=SILENT)
    made.clear()
    first, second = registry.invoke("add", {}).value, registry.invoke("add", {}).value
    assert (first, second, len(made)) == (["mine"], ["mine"], 2)
    assert registry.invoke("add", {"items": ["a"]}).value == ["a", "mine"]
    assert len(made) == 2
    schema = properties(add)["items"]
    assert "default" not in schema
    assert schema["description"] == "x"
    assert required(add) == []


def test_a20_factories_inside_models_and_unions_run_once_as_well():
    made = []

    class Basket(BaseModel):
        kind: Literal["basket"] = "basket"
        items: list[str] = Field(default_factory=lambda: made.append(1) or [])

    class Box(BaseModel):
        size: int

    @tool
    def fill(into: Basket | Box) -> int:
        into.items.append("x")
        return len(into.items)

    registry = ToolRegistry([fill], diagnostics=SILENT)
    made.clear()
    assert [registry.invoke("fill", {"into": {"kind": "basket"}}).value for _ in range(2)] == [1, 1]
    assert len(made) == 2


def test_a20_a_plain_mutable_default_is_shown_as_it_is():
    def plain(items: list[str] = ["a"]) -> list[str]:  # noqa: B006 - the default is what is looked at
        return items

    assert properties(plain)["items"]["default"] == ["a"]
    assert run(plain, {}) == ["a"]


# a21, a22: arguments are what the annotations say


class Colour(Enum):
    RED = "red"


@dataclass
class Size:
    w: int
    h: int = 1


class Extra(TypedDict):
    when: date


class Person(BaseModel):
    name: str
    born: date
    sizes: list[Size] = []


SCALARS: list[tuple[Any, Any, Any]] = [
    (date, "2026-02-28", date(2026, 2, 28)),
    (datetime, "2026-02-28T10:00:00Z", datetime(2026, 2, 28, 10, tzinfo=UTC)),
    (time, "10:30:00", time(10, 30)),
    (timedelta, "PT90M", timedelta(minutes=90)),
    (Decimal, "12.30", Decimal("12.30")),
    (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    (Path, "a/b", Path("a/b")),
    (bytes, "/wD+", b"\xff\x00\xfe"),
    (Colour, "red", Colour.RED),
    (Prio, 2, Prio.HIGH),
    (float, 3, 3.0),
    (Size, {"w": 1}, Size(1)),
    (Inner, {"n": 1}, Inner(n=1)),
    (Extra, {"when": "2026-01-01"}, {"when": date(2026, 1, 1)}),
    (Person, {"name": "A", "born": "2000-01-01", "sizes": [{"w": 2}]}, Person(name="A", born=date(2000, 1, 1), sizes=[Size(2)])),
]
HOLDERS: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("itself", lambda kind: kind, lambda value: value, lambda got: got),
    ("optional", lambda kind: kind | None, lambda value: value, lambda got: got),
    ("list", lambda kind: list[kind], lambda value: [value], lambda got: got[0]),
    ("mapping", lambda kind: dict[str, kind], lambda value: {"k": value}, lambda got: got["k"]),
    ("tuple", lambda kind: tuple[int, kind], lambda value: [1, value], lambda got: got[1]),
    ("deep", lambda kind: list[dict[str, list[kind]]], lambda value: [{"k": [value]}], lambda got: got[0]["k"][0]),
]


@pytest.mark.parametrize(("kind", "sent", "expected"), SCALARS)
@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder[0])
@pytest.mark.parametrize("as_text", [True, False])
def test_a21_arguments_arrive_as_the_annotated_type_at_any_nesting(kind, sent, expected, holder, as_text):
    _, wrap_type, wrap_value, pick = holder
    arguments = {"x": wrap_value(sent)}
    got = pick(run(with_type(wrap_type(kind)), json.dumps(arguments) if as_text else arguments))
    assert got == expected
    assert type(got) is type(expected)


def test_a21_sets_and_models_inside_models_are_built():
    @tool
    def pay(p: Person, tags: set[str], lines: tuple[Size, ...]) -> list[str]:
        return [type(each).__name__ for each in (p, p.born, p.sizes[0], tags, lines, lines[0])]

    arguments = {"p": {"name": "A", "born": "2000-01-01", "sizes": [{"w": 1}]}, "tags": ["a", "b"], "lines": [{"w": 1}]}
    assert run(pay, arguments) == ["Person", "date", "Size", "set", "tuple", "Size"]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (date, "28.02.2026"),
        (date, 5),
        (datetime, "soon"),
        (Decimal, "1,5"),
        (UUID, "12345"),
        (Colour, "blue"),
        (Prio, 3),
        (Size, [1, 2]),
    ],
)
def test_a21_what_is_no_such_value_is_refused_with_its_place(kind, wrong):
    assert paths(refusal(with_type(list[kind]), {"x": [wrong]})) == ["x[0]"]


class User(BaseModel):
    user: str
    mail: str = ""


class Company(BaseModel):
    company: str
    vat: str


class Cat(BaseModel):
    name: str
    lives: int = 9


class Dog(BaseModel):
    name: str
    tricks: int = 0


@dataclass
class Point:
    x: int


@dataclass
class Vector:
    x: int
    y: int = 0


def test_a22_the_branch_that_fits_is_built_whatever_their_order():
    for union in (User | Company, Company | User):
        f = with_type(union)
        assert type(run(f, {"x": {"company": "x", "vat": "1"}})) is Company
        assert type(run(f, {"x": {"user": "u"}})) is User


@pytest.mark.parametrize(
    ("union", "sent", "names"),
    [
        (Cat | Dog, {"name": "Rex"}, ("Cat", "Dog")),
        (Dog | Cat, {"name": "Rex"}, ("Cat", "Dog")),
        (Point | Vector, {"x": 1}, ("Point", "Vector")),
        (Cat | Dog | None, {"name": "Rex"}, ("Cat", "Dog")),
    ],
)
def test_a22_arguments_that_fit_two_branches_are_refused_with_both_named(union, sent, names):
    for annotation, value, path in (
        (union, sent, "x"),
        (list[union], [sent], "x[0]"),
        (dict[str, list[union]], {"k": [sent]}, "x.k[0]"),
    ):
        error = refusal(with_type(annotation), {"x": value})
        assert paths(error) == [path]
        assert all(name in error.user_message for name in names)


def test_a22_one_field_of_its_own_settles_which_branch_is_meant():
    f = with_type(Cat | Dog)
    assert type(run(f, {"x": {"name": "Rex", "tricks": 3}})) is Dog
    assert type(run(f, {"x": {"name": "Tom", "lives": 7}})) is Cat


def test_a22_unions_of_plain_kinds_keep_the_kind_that_was_sent():
    f = with_type(int | str | bool | float | None)
    for value in (5, "5", True, 2.5, None, "true"):
        got = run(f, {"x": value})
        assert (got, type(got)) == (value, type(value))


def test_a22_a_fault_in_a_union_is_told_of_the_branch_that_came_nearest():
    error = refusal(with_type(User | Company), {"x": {"company": "c", "vat": 5}})
    assert paths(error) == ["x.vat"]


# a23: choices that are no text


def test_a23_choices_keep_their_kind_in_the_neutral_schema_and_text_of_one_is_read_as_it():
    @tool
    def lvl(n: Literal[1, 2, 3], p: Prio, on: Literal[True]) -> list[object]:
        return [n, p, on]

    assert properties(lvl)["n"]["enum"] == [1, 2, 3]
    assert schema_of(lvl)["$defs"]["Prio"]["enum"] == [1, 2]
    result = called(lvl, {"n": "2", "p": "2", "on": "true"})
    assert result.value == [2, Prio.HIGH, True]
    assert [type(each) for each in result.value] == [int, Prio, bool]
    assert [repair.partition(":")[0] for repair in result.invocation.repairs] == ["n", "p", "on"]
    assert paths(refusal(lvl, {"n": "2", "p": "2", "on": "true"}, repair=False)) == ["n", "p", "on"]


@pytest.mark.parametrize("wrong", ["4", 4, True, "two", "02", " 2", "2.0", None, [2]])
def test_a23_what_is_none_of_the_choices_is_refused(wrong):
    assert paths(refusal(with_type(Literal[1, 2, 3]), {"x": wrong})) == ["x"]
    assert paths(refusal(with_type(Prio), {"x": wrong})) == ["x"]


def test_a23_choices_of_text_are_never_read_as_numbers():
    f = with_type(Literal["1", "2", "true"])
    for value in ("1", "2", "true"):
        assert run(f, {"x": value}) == value
    assert paths(refusal(f, {"x": 1})) == ["x"]


# a24: typed dicts


class OldStyle(TypedDict, total=False):
    a: Required[int]
    b: str


class Renewed(typing_extensions.TypedDict):
    a: int
    b: NotRequired[str]


class Parent(TypedDict):
    a: int


class Child(Parent, total=False):
    b: str


@pytest.mark.parametrize("kind", [OldStyle, Renewed, Child])
def test_a24_typed_dicts_require_what_they_say_and_no_more(kind):
    f = with_type(kind)
    written = json.loads(json.dumps(schema_of(f)))
    body = written["$defs"][kind.__name__] if "$defs" in written else written["properties"]["x"]
    assert body["required"] == ["a"]
    assert run(f, {"x": {"a": 1}}) == {"a": 1}
    assert run(f, {"x": {"a": 1, "b": "t"}}) == {"a": 1, "b": "t"}
    assert paths(refusal(f, {"x": {"b": "t"}})) == ["x.a"]
    assert paths(refusal(f, {"x": {"a": 1, "b": 5}})) == ["x.b"]
    assert paths(refusal(f, {"x": {"a": 1, "c": 5}})) == ["x.c"]


def test_a24_typed_dicts_with_postponed_annotations_and_as_explicit_input(module_of):
    module = module_of("""
        from __future__ import annotations
        from typing import NotRequired, Required, TypedDict
        class P(TypedDict, total=False):
            a: Required[int]
            b: str
        class Q(TypedDict):
            p: P
            n: NotRequired[int]
        def f(q: Q) -> dict:
            return q
    """)
    assert run(module.f, {"q": {"p": {"a": 1}}}) == {"p": {"a": 1}}
    assert paths(refusal(module.f, {"q": {"n": 1}})) == ["q.p"]
    explicit = Tool("explicit", lambda q: q, input=module.Q)
    assert run(explicit, {"p": {"a": 1}, "n": 2}) == {"p": {"a": 1}, "n": 2}
    assert paths(refusal(explicit, {"p": {}})) == ["p.a"]


# a26, a27: docstrings

DOCSTRINGS = {
    "google": "Get weather.\n\nArgs:\n    city: the city\n    units: C or F\n",
    "google without a blank line": "Get weather.\nArgs:\n    city: the city\n    units: C or F\n",
    "google with a blank line after": "Get weather.\n\nArgs:\n\n    city: the city\n    units: C or F\n",
    "google with types": "Get weather.\n\nArgs:\n    city (str): the city\n    units (str, optional): C or F\n",
    "google in two sections": "Get weather.\n\nArgs:\n    city: the city\n\nKeyword Args:\n    units: C or F\n",
    "google with results": "Get weather.\nArgs:\n    city: the city\n    units: C or F\n\nReturns:\n    x\n\nRaises:\n    E: y",
    "numpy": "Get weather.\n\nParameters\n----------\ncity : str\n    the city\nunits : str\n    C or F\n",
    "numpy without a blank line": "Get weather.\nParameters\n----------\ncity : str\n    the city\nunits: str\n    C or F",
    "numpy with results": "Get weather.\n\nParameters\n----------\ncity\n    the city\nunits\n    C or F\n\nReturns\n-------\nx",
    "sphinx": "Get weather.\n\n:param city: the city\n:param units: C or F\n:returns: the weather\n",
    "sphinx with types": "Get weather.\n:param str city: the city\n:type city: str\n:param units: C or F\n:rtype: str\n",
}


def documented(docstring: str | None) -> Callable[..., str]:
    def weather(city: str, units: str = "C") -> str:
        return city

    weather.__doc__ = docstring
    return weather


@pytest.mark.parametrize("style", DOCSTRINGS)
def test_a26_a27_every_style_describes_the_parameters_and_leaves_the_rest_as_the_description(style):
    made = Tool.of(documented(DOCSTRINGS[style]))
    described = {name: schema.get("description") for name, schema in made.input_schema["properties"].items()}
    assert described == {"city": "the city", "units": "C or F"}
    assert made.description == "Get weather."


def test_a26_a_docstring_without_a_summary_describes_the_parameters():
    made = Tool.of(documented("Args:\n    city: the city\n    units: C or F\n"))
    assert [schema["description"] for schema in made.input_schema["properties"].values()] == ["the city", "C or F"]
    assert made.description is None


def test_a26_documented_names_that_are_no_parameters_and_bare_parameters_are_found():
    made = Tool.of(documented("Get weather.\n\nArgs:\n    town: the city\n    units: C or F\n"))
    found = {finding.parameter: finding.problem for finding in made.input.findings}
    assert set(found) == {"town", "city"}
    assert "no such parameter" in found["town"]
    assert "no description" in found["city"]
    assert Tool.of(documented(DOCSTRINGS["google"])).input.findings == ()


def test_a26_text_that_only_looks_like_a_section_stays_in_the_description():
    text = "Get weather.\n\nNote: it may rain.\nExample: weather('Ulm')\n"
    made = Tool.of(documented(text))
    assert made.description == text.strip()
    assert all("description" not in schema for schema in made.input_schema["properties"].values())


def test_a27_a_description_in_the_annotation_goes_before_the_docstring():
    @tool
    def weather(city: Annotated[str, Field(description="from Field")], units: str = "C") -> str:
        """Get weather.

        Args:
            city: from the docstring
            units: C or F
        """
        return city

    described = {name: schema["description"] for name, schema in properties(weather).items()}
    assert described == {"city": "from Field", "units": "C or F"}


def test_a27_an_explicit_description_goes_before_the_docstring():
    assert Tool.of(documented(DOCSTRINGS["numpy"]), description="Say it my way.").description == "Say it my way."


def test_a27_docstrings_of_methods_and_open_keywords_are_read():
    class Station:
        def read(self, city: str, **more: int) -> str:
            """Read a value.

            Args:
                city: the city
                more: any other value
            """
            return city

    schema = Tool.of(Station().read).input_schema
    assert schema["properties"]["city"]["description"] == "the city"
    assert schema["additionalProperties"]["description"] == "any other value"


# a28: constraints

CONSTRAINTS: list[tuple[Any, dict[str, Any], Any, list[Any]]] = [
    (Annotated[int, Field(ge=1, le=100)], {"minimum": 1, "maximum": 100}, 100, [0, 101, 100_000]),
    (Annotated[int, Ge(1), Le(100)], {"minimum": 1, "maximum": 100}, 1, [0, 101]),
    (Annotated[float, Field(gt=0, lt=1)], {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5, [0, 1]),
    (Annotated[int, Field(multiple_of=5)], {"multipleOf": 5}, 10, [11]),
    (Annotated[str, Field(pattern=r"^[a-z]+$")], {"pattern": "^[a-z]+$"}, "abc", ["ABC", "a1", ""]),
    (Annotated[str, Field(min_length=2, max_length=3)], {"minLength": 2, "maxLength": 3}, "ab", ["a", "abcd"]),
    (Annotated[list[int], Len(1, 2)], {"minItems": 1, "maxItems": 2}, [1], [[], [1, 2, 3]]),
    (Annotated[list[int], Field(max_length=1)], {"maxItems": 1}, [], [[1, 2]]),
    (Annotated[Decimal, Field(ge=0)], {}, "0.5", ["-0.5"]),
]


@pytest.mark.parametrize(("annotation", "words", "good", "bad"), CONSTRAINTS)
@pytest.mark.parametrize("holder", HOLDERS[:4] + HOLDERS[5:], ids=lambda holder: holder[0])
def test_a28_constraints_are_in_the_schema_and_enforced_wherever_they_stand(annotation, words, good, bad, holder):
    _, wrap_type, wrap_value, _ = holder
    f = with_type(wrap_type(annotation))
    written = json.dumps(schema_of(f))
    for word, value in words.items():
        assert f'"{word}": {json.dumps(value)}' in written or f'"{word}": {json.dumps(float(value))}' in written
    run(f, {"x": wrap_value(good)})
    for value in bad:
        error = refusal(f, {"x": wrap_value(value)})
        assert len(error.problems) == 1
        assert error.problems[0].path.startswith("x")


def test_a28_the_bound_that_was_broken_is_named():
    @tool
    def s(limit: Annotated[int, Field(ge=1, le=100)], q: Annotated[str, Field(pattern=r"^[a-z]+$")] | None = None) -> str:
        return "done"

    (problem,) = refusal(s, {"limit": 100_000}).problems
    assert (problem.path, problem.expected) == ("limit", "at most 100")
    (problem,) = refusal(s, {"limit": 5, "q": "A"}).problems
    assert problem.path == "q"
    assert "^[a-z]+$" in problem.expected
    assert run(s, {"limit": 5, "q": None}) == "done"


# a29, a30: wrappers and hidden parameters


def fetch(cfg: str, url: str, depth: int = 1) -> list[object]:
    """Fetch a page.

    Args:
        url: the address
    """
    return [cfg, url, depth]


def with_signature() -> Callable[..., Any]:
    @functools.wraps(fetch)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fetch("cfg", *args, **kwargs)

    signature = inspect.signature(fetch)
    wrapper.__signature__ = signature.replace(parameters=[p for p in signature.parameters.values() if p.name != "cfg"])
    return wrapper


def with_own_parameters() -> Callable[..., Any]:
    @functools.wraps(fetch)
    def wrapper(url: str, depth: int = 1) -> Any:
        return fetch("cfg", url, depth)

    return wrapper


def with_anything() -> Callable[..., Any]:
    def plain(url: str, depth: int = 1) -> list[object]:
        return fetch("cfg", url, depth)

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("make", [with_signature, with_own_parameters, with_anything])
def test_a29_a_wrapper_shows_what_it_accepts_and_accepts_what_it_shows(make):
    wrapper = make()
    assert list(properties(wrapper)) == ["url", "depth"]
    assert run(wrapper, {"url": "u"}) == ["cfg", "u", 1]
    assert run(wrapper, {"url": "u", "depth": 2}) == ["cfg", "u", 2]
    assert paths(refusal(wrapper, {"url": "u", "cfg": "evil"})) == ["cfg"]


def test_a29_wrappers_around_wrappers_and_around_async_tools_are_followed():
    def passing(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return wrapper

    async def inner(url: str, ctx: ToolContext) -> str:
        return f"{url} {ctx.tool}"

    twice = passing(passing(inner))
    assert list(properties(twice)) == ["url"]
    assert run(twice, {"url": "u"}) == "u inner"


def test_a29_a_decorator_below_the_tool_decorator_and_above_it_work():
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return ["logged", function(*args, **kwargs)]

        return wrapper

    @tool(kind="read")
    @logged
    def below(a: int) -> int:
        return a

    assert run(below, {"a": 1}) == ["logged", 1]

    @logged
    @tool(kind="read")
    def above(a: int) -> int:
        return a

    assert run(above, {"a": 1}) == ["logged", 1]
    assert paths(refusal(above, {"a": "x"})) == ["a"]


def context_first(ctx: ToolContext, q: str) -> str:
    return ctx.tool


def context_last(q: str, *, ctx: ToolContext) -> str:
    return ctx.tool


def context_optional(q: str, ctx: ToolContext | None = None) -> str:
    assert ctx is not None
    return ctx.tool


def context_annotated(q: str, ctx: Annotated[ToolContext, "hidden"]) -> str:
    return ctx.tool


def context_as_text(q: str, ctx: "ToolContext") -> str:
    return ctx.tool


def context_with_keywords(q: str, ctx: ToolContext, **kw: Any) -> str:
    return ctx.tool


def context_by_position(ctx: ToolContext, q: str, /) -> str:
    return ctx.tool


@pytest.mark.parametrize(
    "function",
    [
        context_first,
        context_last,
        context_optional,
        context_annotated,
        context_as_text,
        context_with_keywords,
        context_by_position,
    ],
)
def test_a30_an_injected_parameter_is_never_shown_and_never_taken_from_the_model(function):
    assert list(properties(function)) == ["q"]
    assert "ctx" not in json.dumps(schema_of(function))
    assert run(function, {"q": "x"}) == function.__name__
    for evil in ("evil", None, {"tool": "evil"}):
        assert paths(refusal(function, {"q": "x", "ctx": evil})) == ["ctx"]


def test_a30_a_hidden_parameter_stays_hidden_with_every_other_option():
    def t(q: str, secret: str, ctx: ToolContext, *, limit: Annotated[int, Field(ge=1)] = 5) -> list[object]:
        """Search.

        Args:
            q: what
            secret: the key
            ctx: the context
            limit: how many
        """
        return [q, secret, ctx.tool, limit]

    hidden = functools.partial(t, secret="s")
    made = Tool.of(hidden, name="search", description="Search it.", kind="read", tags=["x"], output=list)
    assert set(made.input_schema["properties"]) == {"q", "limit"}
    assert "secret" not in json.dumps(made.input_schema)
    assert run(made, {"q": "x"}) == ["x", "s", "search", 5]
    for evil in ({"secret": "evil"}, {"ctx": "evil"}):
        assert paths(refusal(made, {"q": "x", **evil})) == list(evil)


def test_a30_an_explicit_tool_injects_its_context_beside_the_input():
    explicit = Tool("explicit", lambda q: q, input_schema={"type": "object", "properties": {"ctx": {"type": "string"}}})
    assert run(explicit, {"ctx": "an argument like any other"}) == {"ctx": "an argument like any other"}

    def execute(arguments: dict[str, Any], context: ToolContext) -> list[object]:
        return [arguments, context.tool]

    injected = Tool("injected", execute, input_schema={"type": "object", "properties": {"q": {"type": "string"}}})
    assert run(injected, {"q": "x"}) == [{"q": "x"}, "injected"]
    assert paths(refusal(injected, {"q": "x", "context": "evil"})) == ["context"]


# a31, a32: names of tools


@pytest.mark.parametrize(
    "name", ["my tool!", "", " ", "a b", "a\nb", "tool\n", "x" * 129, "-x", "x.", "a\x00b", "a<b>", "tool()", 5]
)
def test_a31_a_name_that_cannot_be_called_is_refused_at_definition(name):
    for define in (
        lambda: Tool(name, lambda arguments: None, input_schema={"type": "object"}),
        lambda: Tool.of(greet, name=name),
        lambda: tool(name=name)(greet),
    ):
        with pytest.raises(ToolDefinitionError):
            define()


def test_a31_names_of_any_script_are_kept_apart_and_called_by_themselves():
    names = ["風林", "疾風", "wörter.zählen", "a-b", "a_b", "A_b", "ns/tool:v1", "x" * 128]
    tools = [Tool(name, lambda arguments, name=name: name, input_schema={"type": "object"}) for name in names]
    registry = ToolRegistry(tools, diagnostics=SILENT)
    assert registry.ids() == tuple(names)
    assert [registry.invoke(name, {}).value for name in names] == names


def get_item_a() -> str:
    return "a"


def get_item_b() -> str:
    return "b"


def named(function: Callable[..., Any]) -> Tool[Any, Any]:
    return Tool.of(function, name="get_item")


def test_a32_a_second_tool_of_a_name_is_refused_by_every_door_and_the_first_stays():
    registry = ToolRegistry().register(named(get_item_a))
    doors = [
        lambda: registry.register(named(get_item_b)),
        lambda: registry.register_all([Tool.of(greet), named(get_item_b)]),
        lambda: registry.offer(["get_item", named(get_item_b)]),
        lambda: registry.invoke("get_item", {}, tools=[named(get_item_b)]),
    ]
    for door in doors:
        with pytest.raises(DuplicateToolError) as caught:
            door()
        assert caught.value.tool == "get_item"
        assert registry.ids() == ("get_item",)
        assert registry.invoke("get_item", {}).value == "a"


def test_a32_two_tools_of_a_name_are_refused_in_a_fixed_catalog_and_the_same_tool_twice_as_well():
    for pair in ([named(get_item_a), named(get_item_b)], [get_item_a, get_item_a]):
        with pytest.raises(DuplicateToolError):
            ToolRegistry(pair)


# a33: bytes


def test_a33_bytes_are_base64_text_in_the_schema_and_bytes_in_the_function():
    @tool
    def put(data: bytes) -> int:
        return len(data)

    assert properties(put)["data"] == {"type": "string", "contentEncoding": "base64"}
    assert run(put, {"data": "/wD+"}) == 3
    assert run(put, '{"data": ""}') == 0
    assert run(put, {"data": b"\xff\x00\xfe"}) == 3  # a program may hand over the bytes themselves


@pytest.mark.parametrize(
    "wrong", ["not base64!", "/wD", "_wD+", "/wD-", "/wD+ ", "\n/wD+", "/wD+=", "ÿÿÿÿ", "====", 5, [255], {"data": "x"}, None]
)
def test_a33_what_is_no_base64_is_refused_with_the_parameter_named(wrong):
    for annotation, value, path in (
        (bytes, wrong, "x"),
        (list[bytes], ["/wD+", wrong], "x[1]"),
        (dict[str, bytes], {"k": wrong}, "x.k"),
    ):
        error = refusal(with_type(annotation), {"x": value})
        assert paths(error) == [path]
        assert "base64" in error.problems[0].expected


def test_a33_the_other_alphabet_of_base64_means_the_same_bytes():
    for annotation, value, expected in (
        (bytes, "_wD-", b"\xff\x00\xfe"),
        (list[bytes], ["_wD-"], [b"\xff\x00\xfe"]),
        (dict[str, bytes] | None, {"k": "_wD-"}, {"k": b"\xff\x00\xfe"}),
    ):
        assert run(with_type(annotation), {"x": value}) == expected


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xfe", bytes(range(256)), b"plain text"])
def test_a33_any_bytes_survive_the_way_in(data):
    assert run(with_type(bytes), {"x": data}) == data
