"""What `function_input` makes of signatures. The names a1 to a33 are the rows of the project's case list."""

import functools
import inspect
import json
import types
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict, Unpack
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from callgate.errors import ToolDefinitionError, ToolError
from callgate.tools.inputs import InputRefused
from callgate.tools.signature import (
    UnresolvedNameError,
    context_parameter_of,
    function_input,
    is_async,
    is_unbound_method,
    name_of,
)


class Context:
    """Stand for the type that is handed in."""


def read(function):
    return function_input(function, "t", Context)


def parse(function, arguments):
    return read(function).parse(json.dumps(arguments).encode(), arguments)


def call(function, arguments, context=None):
    built = read(function)
    return built.call(built.parse(json.dumps(arguments).encode(), arguments), context)


def refusal(function, arguments):
    with pytest.raises(InputRefused) as caught:
        parse(function, arguments)
    return caught.value


def problem(function, arguments):
    (only,) = refusal(function, arguments).problems
    return only


def properties(function):
    return read(function).schema["properties"]


class Person(BaseModel):
    name: str
    age: int | None = None


class Company(BaseModel):
    company: str
    vat: str


class Twin(BaseModel):
    name: str
    nick: str | None = None


class Node(BaseModel):
    v: int
    kids: list["Node"] = []
    nxt: Annotated["Node", Field(description="the next one")] | None = None


class Priority(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    count: int = 1
    price: Decimal = Decimal("1.50")


class OldPatch(TypedDict, total=False):
    a: Required[int]
    b: str


class OldTree(TypedDict):
    value: int
    children: NotRequired["list[OldTree]"]


# Requiredness and types.


@pytest.mark.parametrize("annotation", [int | None, Optional[int]])  # noqa: UP045 - the other spelling is what is tested
def test_a1_both_spellings_of_an_optional_give_the_same_schema(annotation):
    def f(path: str, n: annotation = None) -> str: ...

    assert properties(f)["n"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert read(f).schema["required"] == ["path"]


def test_a2_requiredness_is_decided_for_each_parameter():
    def find(query: str, tags: list[str] | None = None) -> str: ...

    assert read(find).schema["required"] == ["query"]


def test_a4_text_annotations_are_resolved_in_the_functions_own_module():
    module = types.ModuleType("elsewhere")
    source = (
        "from __future__ import annotations\n"
        "from enum import Enum\nfrom pathlib import Path\nfrom typing import Literal\n"
        "class Currency(Enum):\n    EUR = 'EUR'\n"
        "def pick(m: Literal['a', 'b'], p: Path, c: Currency | None = None) -> str:\n    return f'{m} {p} {c}'\n"
    )
    exec(source, module.__dict__)  # the test's own text, as another module
    assert call(module.pick, {"m": "a", "p": "/x", "c": "EUR"}) == "a /x Currency.EUR"


def test_a4_text_annotations_see_the_scope_that_is_being_run():
    class Local(BaseModel):
        x: int

    def f(value: "Local", many: "list[Local]") -> int:
        return value.x + many[0].x

    assert call(f, {"value": {"x": 1}, "many": [{"x": 2}]}) == 3


def test_a4_text_annotations_see_a_closure_that_has_ended():
    def outer():
        class Local(BaseModel):
            x: int

        def f(value: "Local") -> int:
            assert Local is not None
            return value.x

        return f

    assert call(outer(), {"value": {"x": 1}}) == 1


def test_a5_an_unresolved_name_is_named_with_tool_and_parameter():
    def load(p: "FilePath") -> str: ...  # noqa: F821

    with pytest.raises(UnresolvedNameError) as caught:
        function_input(load, "load_file", Context)
    assert (caught.value.tool, caught.value.parameter, caught.value.name) == ("load_file", "p", "FilePath")
    assert "'FilePath'" in str(caught.value)


def test_a5_an_unresolved_name_inside_a_type_is_named_too():
    def load(p: list["FilePath"]) -> str: ...  # noqa: F821

    with pytest.raises(UnresolvedNameError, match="FilePath"):
        read(load)


def test_an_unresolved_return_annotation_keeps_nothing_from_working():
    def load(p: int) -> "Nowhere":  # noqa: F821
        return p

    assert call(load, {"p": 1}) == 1
    assert read(load).check_return("x") is None


def test_a6_a_recursive_model_keeps_its_references():
    def f(node: Node) -> int:
        return node.kids[0].v

    schema = read(f).schema
    assert schema["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/Node"}
    assert call(f, {"node": {"v": 1, "kids": [{"v": 2}]}}) == 2


def test_a8_a_recursive_field_keeps_its_description_beside_the_reference():
    def f(node: Node) -> int: ...

    options = read(f).schema["$defs"]["Node"]["properties"]["nxt"]["anyOf"]
    assert options[0] == {"$ref": "#/$defs/Node", "description": "the next one"}


def test_a9_models_inside_mappings_and_tuples_are_built():
    def f(by_id: dict[str, Person], pair: tuple[Person, Person]) -> str:
        return by_id["x"].name + pair[1].name

    assert call(f, {"by_id": {"x": {"name": "a"}}, "pair": [{"name": "b"}, {"name": "c"}]}) == "ac"
    assert problem(f, {"by_id": {"x": {}}, "pair": [{"name": "b"}, {"name": "c"}]}).path == "by_id.x.name"
    assert problem(f, {"by_id": {}, "pair": [{"name": "b"}, {"name": 3}]}).path == "pair[1].name"


def test_a19_required_and_nullable_are_independent():
    def t(name: str, prio: Priority | None) -> str:
        return f"{name} {prio!r}"

    assert read(t).schema["required"] == ["name", "prio"]
    assert call(t, {"name": "x", "prio": None}) == "x None"
    assert problem(t, {"name": "x"}).path == "prio"


def test_a_default_of_none_does_not_make_a_type_admit_null():
    def f(n: int = None) -> int | None:  # noqa: RUF013
        return n

    assert properties(f)["n"] == {"type": "integer"}
    assert call(f, {}) is None
    assert problem(f, {"n": None}).got == "null"


def test_a20_a_default_factory_runs_once_in_each_call_and_is_not_shared():
    made = []

    def make():
        made.append(1)
        return []

    def add(items: list[str] = Field(default_factory=make, description="x")) -> int:  # noqa: B008
        items.append("a")
        return len(items)

    assert properties(add) == {"items": {"type": "array", "items": {"type": "string"}, "description": "x"}}
    assert made == []
    assert (call(add, {}), call(add, {})) == (1, 1)
    assert made == [1, 1]


def test_a20_a_default_factory_runs_once_where_unions_are_read_twice():
    made = []

    def add(entry: Person | Company, items: list[str] = Field(default_factory=lambda: made.append(1) or [])) -> int:  # noqa: B008
        return len(items)

    assert call(add, {"entry": {"company": "x", "vat": "1"}}) == 0
    assert made == [1]


def test_a20_a_default_factory_inside_a_branch_of_a_union_runs_once():
    made = []

    class Basket(BaseModel):
        items: list[str] = Field(default_factory=lambda: made.append(1) or [])

        @model_validator(mode="after")
        def look(self):
            self.items.append("x")
            return self

    class Box(BaseModel):
        size: int

    def fill(into: Basket | Box) -> list[str]:
        return into.items

    assert call(fill, {"into": {}}) == ["x"]
    assert made == [1]


def test_a_default_inside_field_is_filled_in_and_shown():
    def f(n: int = Field(5, ge=1)) -> int:
        return n

    def g(n: Annotated[int, Field(default=6)]) -> int:
        return n

    assert (call(f, {}), call(g, {})) == (5, 6)
    assert properties(f)["n"] == {"type": "integer", "minimum": 1, "default": 5}
    assert "required" not in read(g).schema


def test_a_field_without_default_is_required():
    def f(n: int = Field(description="a number")) -> int: ...

    assert read(f).schema["required"] == ["n"]
    assert properties(f)["n"] == {"type": "integer", "description": "a number"}


def test_two_defaults_are_refused():
    def f(n: Annotated[int, Field(default=6)] = 5) -> int: ...

    with pytest.raises(ToolDefinitionError, match="two defaults"):
        read(f)


def test_the_functions_own_default_applies_as_the_very_object():
    sentinel = object()

    def f(x: Any = sentinel) -> bool:
        return x is sentinel

    assert call(f, {}) is True
    assert properties(f) == {"x": {}}


def test_a_sentinel_default_is_not_shown():
    class Unset(Enum):
        UNSET = "unset"

    def f(x: str = Unset.UNSET, colour: Colour = Colour.RED) -> str: ...

    assert properties(f)["x"] == {"type": "string"}
    assert properties(f)["colour"]["default"] == "red"


def test_a21_arguments_arrive_as_the_annotated_types_at_any_depth():
    def pay(p: Person, lines: list[Line], on: date, amount: Decimal, ref: UUID, where: Path, colour: Colour) -> list[object]:
        return [p, lines, on, amount, ref, where, colour]

    ref = "12345678-1234-5678-1234-567812345678"
    given = {
        "p": {"name": "a"},
        "lines": [{"sku": "x", "price": "2.10"}],
        "on": "2025-01-31",
        "amount": "1.10",
        "ref": ref,
        "where": "/tmp/x",
        "colour": "red",
    }
    assert call(pay, given) == [
        Person(name="a"),
        [Line("x", 1, Decimal("2.10"))],
        date(2025, 1, 31),
        Decimal("1.10"),
        UUID(ref),
        Path("/tmp/x"),
        Colour.RED,
    ]


def test_a22_the_matching_branch_is_built():
    def save(e: Person | Company) -> str:
        return type(e).__name__

    assert call(save, {"e": {"company": "x", "vat": "1"}}) == "Company"
    assert call(save, {"e": {"name": "x"}}) == "Person"


def test_a22_a_branch_that_alone_has_the_field_is_built_whatever_the_order():
    def first(e: Person | Twin) -> str:
        return type(e).__name__

    def second(e: Twin | Person) -> str:
        return type(e).__name__

    for function in (first, second):
        assert call(function, {"e": {"name": "x", "nick": "y"}}) == "Twin"
        assert call(function, {"e": {"name": "x", "age": 3}}) == "Person"


@pytest.mark.parametrize("annotation", [Person | Twin, Twin | Person, list[Person] | list[Twin] | None])
def test_a22_ambiguity_is_an_error_that_names_both_branches(annotation):
    def save(e: annotation) -> str: ...

    is_list = annotation not in (Person | Twin, Twin | Person)
    only = problem(save, {"e": [{"name": "x"}] if is_list else {"name": "x"}})
    assert only.path == ("e[0]" if is_list else "e")
    assert "Person" in only.expected
    assert "Twin" in only.expected


def test_a22_an_ambiguity_inside_a_model_is_found():
    class Box(BaseModel):
        inner: Person | Twin

    def save(box: Box) -> str: ...

    assert problem(save, {"box": {"inner": {"name": "x"}}}).path == "box.inner"


def test_a22_a_wrong_union_value_is_explained_by_the_nearest_branch():
    def save(e: Person | Company) -> str: ...

    only = problem(save, {"e": {"company": "x"}})
    assert only.path == "e.vat"
    assert "Company" in only.hint


def test_a22_a_value_of_no_branchs_kind_names_all_kinds():
    def save(e: int | list[str]) -> str: ...

    assert problem(save, {"e": "x"}).expected == "an integer or a list"


class Car(BaseModel):
    kind: Literal["car"]
    doors: int


class Bike(BaseModel):
    kind: Literal["bike"]
    car: str = ""


def test_discriminated_unions_are_strict_and_their_problems_have_plain_paths():
    def buy(v: Annotated[Car | Bike, Field(discriminator="kind")]) -> str:
        return type(v).__name__

    assert call(buy, {"v": {"kind": "bike"}}) == "Bike"
    assert problem(buy, {"v": {"kind": "car", "doors": "2"}}).path == "v.doors"
    assert problem(buy, {"v": {"kind": "car"}}).path == "v.doors"
    assert problem(buy, {"v": {"kind": "plane"}}).path == "v.kind"
    assert problem(buy, {"v": {}}).path == "v.kind"


def test_a_tag_that_is_also_a_key_does_not_confuse_the_path():
    class Text(BaseModel):
        type: Literal["text"]
        text: str
        size: int

    class Image(BaseModel):
        type: Literal["image"]
        url: str

    def show(part: Annotated[Text | Image, Field(discriminator="type")]) -> str: ...

    assert problem(show, {"part": {"type": "text", "text": "x"}}).path == "part.size"


def test_a24_typed_dicts_know_what_is_required():
    def f(p: OldPatch) -> str:
        return str(p)

    assert read(f).schema["$defs"]["OldPatch"]["required"] == ["a"]
    assert call(f, {"p": {"a": 1}}) == "{'a': 1}"
    assert problem(f, {"p": {"b": "x"}}).path == "p.a"
    assert refusal(f, {"p": {"a": 1, "c": 2}}).unknown == ("p.c",)


def test_a24_typed_dicts_may_be_recursive_and_nested_in_other_types():
    def f(trees: dict[str, list[OldTree]] | None = None) -> str: ...

    good = {"trees": {"x": [{"value": 1, "children": [{"value": 2}]}]}}
    assert parse(f, good) == good
    assert problem(f, {"trees": {"x": [{"value": 1, "children": [{"value": "2"}]}]}}).path == "trees.x[0].children[0].value"


def test_a28_constraints_are_shown_and_enforced_also_under_optional():
    def s(
        limit: Annotated[int, Field(ge=1, le=100)],
        q: Annotated[str, Field(pattern=r"^[a-z]+$")] | None = None,
        names: Annotated[list[str], Field(max_length=2)] | None = None,
    ) -> str: ...

    assert properties(s)["limit"] == {"type": "integer", "minimum": 1, "maximum": 100}
    assert properties(s)["q"]["anyOf"][0] == {"type": "string", "pattern": "^[a-z]+$"}
    assert problem(s, {"limit": 100000}).expected == "at most 100"
    assert problem(s, {"limit": 1, "q": "A"}).path == "q"
    assert problem(s, {"limit": 1, "names": ["a", "b", "c"]}).got == "3 items"


@pytest.mark.parametrize(
    ("kind", "value", "expected", "got"),
    [
        (Annotated[str, Field(min_length=1)], "", "at least 1 character", "0 characters"),
        (Annotated[str, Field(min_length=2)], "a", "at least 2 characters", "1 character"),
        (Annotated[list[int], Field(min_length=1)], [], "at least 1 item", "0 items"),
        (Annotated[list[int], Field(max_length=1)], [0, 0], "at most 1 item", "2 items"),
        (Annotated[Decimal, Field(decimal_places=1)], "0.25", "at most 1 decimal place", "text"),
    ],
)
def test_a_signature_s_problem_counts_one_in_the_singular(kind, value, expected, got):
    def s(a: kind) -> str: ...

    only = problem(s, {"a": value})
    assert (only.expected, only.got) == (expected, got)


# Strictness.


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "5"), (int, 1.0), (int, True), (int, None), (str, 5), (float, "1.5"), (float, "NaN"), (float, "Infinity"),
        (bool, 1), (bool, "true"), (list[int], "[1]"), (list[int], {"0": 1}), (date, 0), (Decimal, "NaN"), (Literal[1, 2], True),
        (Literal[1, 2], 1.0), (Literal[True], 1), (Literal["1", 2], "2"), (Priority, True), (Priority, 1.0), (Priority, "1"),
        (dict[str, int], [1]), (None, 0),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused_and_never_converted(annotation, value):
    def f(x: annotation) -> None: ...

    assert problem(f, {"x": value}).path == "x"


@pytest.mark.parametrize("value", ["1e999", "NaN", "-Infinity"])
def test_a_number_that_is_not_finite_is_refused_also_in_nested_models(value):
    class Reading(BaseModel):
        heat: float

    def f(r: Reading | None = None, x: float = 0.0) -> None: ...

    for text in (f'{{"r": {{"heat": {value}}}}}', f'{{"x": {value}}}'):
        with pytest.raises(InputRefused):
            read(f).parse(text.encode(), {})


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (date, "20250131"),
        (datetime, "20250131"),
        (datetime, "1e9"),
        (time, "36000"),
        (timedelta, "3600"),
        (datetime, "2025-01-31"),
    ],
)
def test_a_number_as_text_is_no_time(annotation, text):
    class Deep(BaseModel):
        x: annotation

        @field_validator("x", mode="before")
        @classmethod
        def look(cls, value):
            return value

    def plain(x: annotation) -> None: ...

    def deep(d: Deep) -> None: ...

    assert problem(plain, {"x": text}).path == "x"
    assert problem(deep, {"d": {"x": text}}).path == "d.x"


@pytest.mark.parametrize("annotation", [str | date, str | datetime, str | time | timedelta, str | UUID | None])
@pytest.mark.parametrize("text", ["2025-01-31", "01:00:00", "12345", "1 day", "2025-01-31T00:00:00"])
def test_text_stays_text_where_text_is_named_first(annotation, text):
    def f(x: annotation) -> Any:
        return x

    assert call(f, {"x": text}) == text


def test_times_are_read_from_iso_text():
    def f(on: date | str, at: datetime, by: time, within: timedelta, due: date | None = None) -> list[Any]:
        return [on, at.isoformat(), by, within, due]

    given = {"on": "2025-01-31", "at": "2025-01-31T10:00:00+01:00", "by": "10:00", "within": "PT1H", "due": None}
    assert call(f, given) == [date(2025, 1, 31), "2025-01-31T10:00:00+01:00", time(10), timedelta(hours=1), None]


def test_a_union_read_from_left_to_right_is_the_authors_choice():
    def save(e: Annotated[Person | Twin, Field(union_mode="left_to_right")]) -> str:
        return type(e).__name__

    assert call(save, {"e": {"name": "x"}}) == "Person"


def test_two_parameters_of_one_name_are_refused():
    def move(from_: Annotated[str, Field(alias="to")], to: str) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'to'"):
        read(move)


def test_nested_models_are_strict():
    def f(p: Person, lines: list[Line]) -> None: ...

    assert problem(f, {"p": {"name": "x", "age": "3"}, "lines": []}).path == "p.age"
    assert problem(f, {"p": {"name": "x"}, "lines": [{"sku": "x", "count": True}]}).path == "lines[0].count"


def test_a_model_that_chose_to_be_lax_stays_lax():
    class Lax(BaseModel):
        model_config = ConfigDict(strict=False)
        n: int
        m: Annotated[int, Field(strict=True)] = 0

    def f(x: Lax, y: Annotated[int, Field(strict=False)] = 0) -> int:
        return x.n + y

    assert call(f, {"x": {"n": "3"}, "y": "4"}) == 7
    assert problem(f, {"x": {"n": "3", "m": "4"}}).path == "x.m"


def test_values_after_an_authors_before_validator_are_read_as_from_json():
    class Booking(BaseModel):
        on: date
        tags: set[str]
        raw: bytes
        ref: UUID

        @model_validator(mode="before")
        @classmethod
        def look(cls, value):
            return value

    def f(b: Booking) -> Booking:
        return b

    good = {"on": "2025-01-31", "tags": ["a"], "raw": "/wD+", "ref": "12345678-1234-5678-1234-567812345678"}
    assert call(f, {"b": good}).raw == b"\xff\x00\xfe"
    assert problem(f, {"b": {**good, "on": 0}}).path == "b.on"
    assert problem(f, {"b": {**good, "raw": "not base64!"}}).path == "b.raw"


def test_what_an_authors_validator_raises_is_not_told():
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, n):
            if n == 1:
                raise ValueError("the password is 1234")
            if n == 3:
                raise KeyError("the password is 1234")
            if n == 5:
                raise ToolError("use an even number")
            return n

    def f(e: Even) -> None: ...

    for odd in (1, 3):
        assert "1234" not in str(problem(f, {"e": {"n": odd}}))
    assert problem(f, {"e": {"n": 5}}).hint == "use an even number"


# Unknown arguments.


def test_an_unknown_argument_is_refused_with_the_nearest_name():
    def look_up(topic: str = "", limit: int = 3) -> str: ...

    refused = refusal(look_up, {"topc": "x"})
    assert refused.unknown == ("topc",)
    assert "did you mean 'topic'?" in refused.problems[0].hint
    assert "limit" in refused.problems[0].hint


def test_an_unknown_argument_is_named_also_when_its_name_is_odd():
    def f(x: int = 0) -> None: ...

    assert refusal(f, {"a b": 1}).unknown == ("a b",)


def test_a_function_without_parameters_takes_nothing():
    def ping() -> str:
        return "pong"

    assert read(ping).schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert call(ping, {}) == "pong"
    assert refusal(ping, {"x": 1}).unknown == ("x",)


def test_unknown_keys_are_refused_in_nested_types_that_do_not_say_otherwise():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int

    class Ignoring(BaseModel):
        model_config = ConfigDict(extra="ignore")
        x: int

    def f(p: Person | None = None, line: Line | None = None, o: Open | None = None, i: Ignoring | None = None) -> Any:
        return o or i

    assert refusal(f, {"p": {"name": "x", "agee": 1}}).unknown == ("p.agee",)
    assert "'age'" in problem(f, {"p": {"name": "x", "agee": 1}}).hint
    assert refusal(f, {"line": {"sku": "x", "z": 1}}).unknown == ("line.z",)
    assert call(f, {"o": {"x": 1, "z": 2}}).z == 2
    assert call(f, {"i": {"x": 1, "z": 2}}).x == 1
    definitions = read(f).schema["$defs"]
    assert definitions["Person"]["additionalProperties"] is False
    assert definitions["Open"]["additionalProperties"] is True
    assert "additionalProperties" not in definitions["Ignoring"]


def test_fields_may_be_named_like_words_of_pydantics_own():
    class Odd(BaseModel):
        type: int
        default: Person
        config: date
        cls: Literal[1] = 1
        choices: dict[str, int] = {}

        @field_validator("config", mode="before")
        @classmethod
        def look(cls, value):
            return value

    def f(odd: Odd) -> Odd:
        return odd

    assert call(f, {"odd": {"type": 1, "default": {"name": "x"}, "config": "2025-01-31"}}).config == date(2025, 1, 31)
    assert problem(f, {"odd": {"type": 1, "default": {"name": "x", "z": 1}, "config": "2025-01-31"}}).path == "odd.default.z"


def test_every_problem_is_told_at_once():
    def add(todos: list[Line], when: date) -> None: ...

    refused = refusal(add, {"items": [], "when": "soon"})
    assert {found.path for found in refused.problems} == {"items", "todos", "when"}
    assert "errors.pydantic.dev" not in str(refused)


# Names.


def test_a14_leading_underscore_names_are_kept_as_written():
    def look(_path: str, __top: int = 5, *, model_config: str = "", schema: int = 0) -> str:
        return f"{_path} {__top} {model_config}"

    assert list(properties(look)) == ["_path", "__top", "model_config", "schema"]
    assert call(look, {"_path": "x", "__top": 7, "model_config": "y"}) == "x 7 y"


def test_an_alias_is_the_name_that_the_model_uses():
    def move(from_: Annotated[str, Field(alias="from")], to: str = "") -> str:
        return from_

    assert list(properties(move)) == ["from", "to"]
    assert call(move, {"from": "x"}) == "x"


def test_no_title_repeats_a_name():
    def f(p: Person, lines: list[Line], c: Colour, node: Node) -> None: ...

    assert '"title"' not in json.dumps(read(f).schema)


def test_a_title_that_an_author_wrote_stays():
    def f(x: Annotated[int, Field(title="How many")]) -> None: ...

    assert properties(f)["x"]["title"] == "How many"


# *args, **kwargs, positional-only.


def test_a16_star_args_are_refused():
    def f(*values: int) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        read(f)
    assert caught.value.parameter == "values"


def test_a16_typed_keywords_are_shown_checked_and_passed():
    def f(x: int, **kw: str) -> dict[str, str]:
        return {"x": str(x), **kw}

    assert read(f).schema["additionalProperties"] == {"type": "string"}
    assert call(f, {"x": 1, "colour": "red", "x y": "z"}) == {"x": "1", "colour": "red", "x y": "z"}
    assert problem(f, {"x": 1, "colour": 5}).path == "colour"


def test_a16_untyped_keywords_are_refused():
    def f(x: int, **kw) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        read(f)
    assert caught.value.parameter == "kw"


def test_unpacked_keywords_are_parameters():
    def f(**kw: Unpack[OldPatch]) -> OldPatch:
        return kw

    assert read(f).schema["required"] == ["a"]
    assert call(f, {"a": 1}) == {"a": 1}
    assert refusal(f, {"a": 1, "c": 2}).unknown == ("c",)


def test_positional_only_parameters_are_passed_by_position():
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
        return a, b, c, d

    assert call(f, {"a": 1}) == (1, 2, 3, 4)
    assert call(f, {"a": 1, "b": 5, "c": 6, "d": 7}) == (1, 5, 6, 7)
    assert read(f).bind({"a": 1, "d": 7}) == ((1, 2), {"d": 7})


def test_an_unannotated_parameter_is_refused_and_any_is_not():
    def bare(x): ...

    def anything(x: Any, y: object) -> object:
        return x

    with pytest.raises(ToolDefinitionError) as caught:
        read(bare)
    assert (caught.value.tool, caught.value.parameter) == ("t", "x")
    assert call(anything, {"x": {"deep": [1]}, "y": None}) == {"deep": [1]}


@pytest.mark.parametrize("annotation", [object().__class__.__subclasshook__, 5, "1 +", "undefined.x"])
def test_an_annotation_that_is_no_type_is_refused(annotation):
    def f(good: int, bad: annotation) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        read(f)
    assert caught.value.parameter == "bad"


class Handle:
    """Be no type that JSON can carry."""


@pytest.mark.parametrize("annotation", [Handle, list[Handle], Handle | int, Annotated[str, Field(pattern="(")]])
def test_a_type_that_json_cannot_carry_is_refused_with_its_parameter(annotation):
    def f(good: int, bad: annotation) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        read(f)
    assert (caught.value.tool, caught.value.parameter) == ("t", "bad")
    assert "errors.pydantic.dev" not in str(caught.value)


# Callables of other kinds.


def greet(name: str, greeting: str = "Hi", *, mark: str = "!") -> str:
    """Greet somebody.

    Args:
        name: who
        greeting: how
    """
    return f"{greeting} {name}{mark}"


def test_a10_a_partial_hides_what_it_binds_and_cannot_be_overridden():
    hello = functools.partial(greet, greeting="Hello")
    assert list(properties(hello)) == ["name", "mark"]
    assert call(hello, {"name": "Ann"}) == "Hello Ann!"
    assert refusal(hello, {"name": "Ann", "greeting": "Evil"}).unknown == ("greeting",)
    assert name_of(hello) == "greet"
    assert read(hello).description == "Greet somebody."
    assert properties(hello)["name"]["description"] == "who"


def test_a10_a_partial_can_bind_by_position():
    bound = functools.partial(greet, "Ann")
    assert list(properties(bound)) == ["greeting", "mark"]
    assert call(bound, {"greeting": "Yo"}) == "Yo Ann!"


def test_a10_an_update_wrapped_partial_does_not_fall_back_to_the_original():
    bound = functools.update_wrapper(functools.partial(functools.partial(greet, "Ann"), mark="?"), greet)
    assert list(properties(bound)) == ["greeting"]
    assert call(bound, {}) == "Hi Ann?"


def test_a10_a_keyword_bound_for_catch_all_keywords_cannot_be_overridden():
    def f(x: int, **kw: str) -> dict[str, str]:
        return kw

    bound = functools.partial(f, colour="red")
    assert call(bound, {"x": 1, "size": "L"}) == {"colour": "red", "size": "L"}
    assert refusal(bound, {"x": 1, "colour": "blue"}).unknown == ("colour",)


@pytest.mark.parametrize("bound", [functools.partial(greet, "a", "b", "c"), functools.partial(greet, nobody=1)])
def test_a_partial_that_can_never_be_called_is_refused(bound):
    with pytest.raises(ToolDefinitionError):
        read(bound)


class Counter:
    """Count from a start."""

    def __init__(self, start: int) -> None:
        self.start = start

    async def __call__(self, ctx: Context, q: int) -> object:
        """Count on."""
        return self.start + q, ctx

    def add(self, x: int) -> int:
        return self.start + x

    @classmethod
    def make(cls, start: int) -> "Counter":
        return cls(start)

    @staticmethod
    def double(x: int) -> int:
        return 2 * x

    def spread(self, **kw: int) -> dict[str, int]:
        return kw


async def test_a11_a_callable_object_is_read_by_its_call_and_its_context_is_hidden():
    counter, context = Counter(5), Context()
    built = read(counter)
    assert list(built.schema["properties"]) == ["q"]
    assert (built.context_parameter, built.kind, built.description) == ("ctx", "async", "Count on.")
    assert await call(counter, {"q": 1}, context) == (6, context)
    assert name_of(counter) == "Counter"


def test_a12_bound_class_and_static_methods_work():
    assert call(Counter(5).add, {"x": 1}) == 6
    assert call(Counter.make, {"start": 2}).start == 2
    assert call(Counter.double, {"x": 2}) == 4
    assert call(vars(Counter)["double"], {"x": 2}) == 4


def test_a12_the_instance_of_a_method_cannot_be_given_as_a_keyword():
    assert call(Counter(5).spread, {"a": 1}) == {"a": 1}
    assert refusal(Counter(5).spread, {"self": 1}).unknown == ("self",)


def test_a12_an_unbound_method_is_told_apart():
    def free(self: int) -> None: ...

    assert is_unbound_method(Counter.add)
    assert is_unbound_method(vars(Counter)["make"])
    assert not is_unbound_method(Counter(1).add)
    assert not is_unbound_method(Counter.double)
    assert not is_unbound_method(free)
    assert not is_unbound_method(functools.partial(greet))


@pytest.mark.parametrize("thing", [Counter, vars(Counter)["make"], len, 5, "f"])
def test_what_is_no_function_is_refused(thing):
    with pytest.raises(ToolDefinitionError):
        read(thing)


def with_configuration(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, cfg="secret", **kwargs)

    own = inspect.signature(function)
    wrapper.__signature__ = own.replace(parameters=[p for p in own.parameters.values() if p.name != "cfg"])
    return wrapper


def plainly(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def test_a29_an_explicit_signature_goes_first():
    @with_configuration
    def f(q: str, cfg: str) -> str:
        return q + cfg

    assert list(properties(f)) == ["q"]
    assert call(f, {"q": "x"}) == "xsecret"


def test_a29_a_wrappers_own_signature_goes_before_the_wrapped_ones():
    def f(q: str, cfg: str) -> str:
        return q + cfg

    @functools.wraps(f)
    def wrapper(q: str) -> str:
        return f(q, "y")

    assert list(properties(wrapper)) == ["q"]
    assert call(wrapper, {"q": "x"}) == "xy"


def test_a29_a_signature_that_wraps_copied_does_not_hide_the_wrappers_own():
    @with_configuration
    def f(q: str, lang: str, cfg: str) -> str:
        return q + lang + cfg

    @functools.wraps(f)
    def wrapper(q: str) -> str:
        return f(q, lang="en")

    assert list(properties(wrapper)) == ["q"]
    assert list(properties(plainly(f))) == ["q", "lang"]


def test_a29_a_wrapper_that_takes_anything_shows_the_wrapped_signature():
    assert list(properties(plainly(plainly(greet)))) == ["name", "greeting", "mark"]
    assert call(plainly(greet), {"name": "Ann"}) == "Hi Ann!"
    assert call(functools.cache(greet), {"name": "Ann"}) == "Hi Ann!"


# Hidden parameters.


@pytest.mark.parametrize(
    "annotation",
    [Context, Context | None, Optional[Context], Annotated[Context, "x"], "Context", "Context | None"],  # noqa: UP045
)
def test_a30_a_context_parameter_is_hidden_filled_in_and_cannot_be_given(annotation):
    def t(q: str, ctx: annotation = None) -> object:
        return ctx

    context = Context()
    assert list(properties(t)) == ["q"]
    assert read(t).context_parameter == "ctx"
    assert call(t, {"q": "x"}, context) is context
    assert refusal(t, {"q": "x", "ctx": "evil"}).unknown == ("ctx",)


def test_a30_a_context_parameter_cannot_be_given_where_other_keywords_can():
    def t(ctx: Context, **kw: str) -> object:
        return ctx

    assert refusal(t, {"ctx": "evil"}).unknown == ("ctx",)
    assert call(t, {"x": "y"}, None) is None


def test_a_context_may_be_positional_only():
    def t(ctx: Context, q: str, /) -> tuple[object, str]:
        return ctx, q

    context = Context()
    assert call(t, {"q": "x"}, context) == (context, "x")
    assert read(t).bind({"q": "x"}) == (("x",), {})


def test_a_second_context_parameter_is_refused():
    def t(a: Context, b: Context) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        read(t)
    assert caught.value.parameter == "b"


def test_calling_leaves_the_parsed_arguments_as_they_are():
    def t(a: int, /, ctx: Context, b: int = 0) -> None: ...

    built = read(t)
    parsed = built.parse(b'{"a": 1, "b": 2}', {"a": 1, "b": 2})
    built.call(parsed, Context())
    assert parsed == {"a": 1, "b": 2}


def test_the_context_parameter_of_a_function_with_an_explicit_input_is_found():
    def with_context(value, ctx: Context): ...

    def without(value): ...

    assert context_parameter_of(with_context, "t", Context) == "ctx"
    assert context_parameter_of(without, "t", Context) is None
    assert context_parameter_of(print, "t", Context) is None


def test_two_context_parameters_of_a_function_with_an_explicit_input_are_refused():
    def twice(value, a: Context, b: Context): ...

    def by_position(ctx: Context, /): ...

    for function in (twice, by_position):
        with pytest.raises(ToolDefinitionError):
            context_parameter_of(function, "t", Context)


# Bytes.


def test_a33_bytes_are_base64_in_schema_and_value():
    def put(data: bytes) -> int:
        return len(data)

    assert properties(put)["data"] == {"type": "string", "contentEncoding": "base64"}
    assert call(put, {"data": "/wD+"}) == 3


@pytest.mark.parametrize("text", ["not base64!", "/wD", "/wD+\n", " /wD+", "/x==", "===="])
def test_a33_what_is_no_base64_is_refused_by_name(text):
    def put(data: bytes) -> int: ...

    only = problem(put, {"data": text})
    assert (only.path, only.expected) == ("data", "base64 text")


def test_a33_pydantics_own_base64_type_is_decoded_once_and_strictly():
    from pydantic import Base64Bytes  # noqa: PLC0415

    def put(data: Base64Bytes) -> bytes:
        return data

    assert call(put, {"data": "/wD+"}) == b"\xff\x00\xfe"
    assert problem(put, {"data": "???"}).path == "data"


# How it runs.


def test_the_kind_tells_how_a_function_runs():
    async def coroutine(x: int): ...

    async def agen(x: int):
        yield x

    def gen(x: int):
        yield x

    kinds = [read(function).kind for function in (coroutine, agen, gen, greet, functools.partial(coroutine, 1), Counter(1))]
    assert kinds == ["async", "async_generator", "generator", "sync", "async", "async"]
    assert is_async(functools.partial(agen, 1))
    assert not is_async(gen)


# Documentation.


def test_a26_a27_parameter_texts_reach_the_schema_and_the_block_leaves_the_description():
    def weather(city: str, units: str = "C") -> str:
        """Get weather.
        Args:
            city: the city
            units: C or F
        """

    assert read(weather).description == "Get weather."
    assert properties(weather)["city"]["description"] == "the city"
    assert properties(weather)["units"]["description"] == "C or F"


def test_a27_an_explicit_description_wins():
    def weather(city: Annotated[str, Field(description="explicit")]) -> str:
        """Get weather.

        Args:
            city: from the docstring
        """

    assert properties(weather)["city"]["description"] == "explicit"


def test_a26_what_the_docstring_and_the_parameters_do_not_share_is_found():
    def weather(city: str, ctx: Context, p: Priority, line: Person, units: str = "C") -> str:
        """Get weather.

        Args:
            city: the city
            citty: a typing error
            ctx: hidden
        """

    assert {(found.parameter, found.problem.split(",")[0]) for found in read(weather).findings} == {
        ("citty", "the docstring describes it"),
        ("units", "it has no description"),
        ("p", "it has no description"),
        ("line", "it has no description"),
    }


def test_a_description_of_keywords_reaches_their_schema():
    def f(**labels: str) -> None:
        """Label.

        Args:
            **labels: label by name
        """

    assert read(f).schema["additionalProperties"] == {"type": "string", "description": "label by name"}
    assert read(f).findings == ()


# Returns.


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (str, "x", ["a"]),
        (list[int], [1], ["1"]),
        (Person, Person(name="x"), "x"),
        (int | None, None, "x"),
        (Handle, Handle(), 5),
        (OldPatch, {"a": 1}, {"a": "x"}),
    ],
)
def test_d15_a_wrong_return_is_told_and_a_right_one_is_not(annotation, good, bad):
    def f() -> annotation: ...

    built = read(f)
    assert built.check_return(good) is None
    assert f"returned {type(bad).__name__}" in built.check_return(bad)


def test_d15_awaited_and_collected_values_are_compared():
    async def items() -> "Any": ...

    def eventually() -> "__import__('collections.abc', fromlist=['x']).Awaitable[int]": ...

    assert read(items).check_return(object()) is None
    assert read(eventually).check_return(5) is None
    assert read(eventually).check_return("5") is not None


@dataclass
class Basket:
    lines: list[Line] = field(default_factory=list)


def test_dataclass_defaults_and_factories_apply():
    def f(basket: Basket) -> Basket:
        return basket

    first, second = call(f, {"basket": {}}), call(f, {"basket": {}})
    assert first == Basket()
    assert first.lines is not second.lines
