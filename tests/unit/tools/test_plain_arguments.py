"""What a policy judges and a person sees of a call's arguments is what its tool gets, by the names of the schema."""

import dataclasses
import json
import math
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic.dataclasses
import pytest
from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    Json,
    PlainSerializer,
    PlainValidator,
    Secret,
    SecretStr,
    model_serializer,
    model_validator,
)
from pydantic_core import core_schema
from typing_extensions import TypedDict

from callgate import (
    Approve,
    Caller,
    Denied,
    Edit,
    Gate,
    InvalidInputError,
    KeepContent,
    Pending,
    Succeeded,
    Tool,
    ToolCall,
    ToolDefinitionError,
    ToolDeniedError,
    ToolRegistry,
)
from callgate.policy import AllowAll, RulePolicy
from callgate.store import JournalFilter, MemoryStore
from callgate.tools.json_forms import MASKED
from callgate.tools.plain_arguments import plain_arguments
from callgate.tools.reading import read_arguments

ALICE = Caller("alice")


def seen(annotation, value, **keywords):
    """Give what a policy sees of a value that a model writes for a parameter of a type."""

    def body(it):
        return "done"

    body.__annotations__ = {"it": annotation}
    tool = Tool.of(body)
    return of_call(tool, {"it": value}, **keywords)["it"]


def of_call(tool, arguments):
    reading = read_arguments(tool.name, json.dumps(arguments))
    return plain_arguments(tool, tool.input.parse(reading.text, reading.arguments), reading.text)


class Account:
    def __init__(self, number):
        self.number = number


@dataclasses.dataclass
class Point:
    name: str


class Card(BaseModel):
    number: str = Field(exclude=True)
    limit: Annotated[int, PlainSerializer(lambda _: 0)] = Field(10, validation_alias="limitEuro", serialization_alias="limit_eur")


class Login(BaseModel):
    user: str
    password: SecretStr


LOGIN = {"user": "a", "password": "hunter2"}


class Payment(TypedDict):
    amount: Annotated[int, Field(alias="amountEuro"), AfterValidator(lambda value: value * 100)]


# ── names and forms ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_type_says_of_its_writing_hides_nothing():
    assert seen(list[Card], [{"number": "4", "limitEuro": 5}]) == [{"number": "4", "limitEuro": 5}]


def test_an_own_serializer_of_a_model_hides_nothing():
    class Quiet(BaseModel):
        amount: int

        @model_serializer
        def written(self) -> dict[str, Any]:
            return {}

    assert seen(Quiet, {"amount": 5}) == {"amount": 5}


def test_a_dict_with_an_alias_shows_what_the_tool_gets_under_the_name_of_the_schema():
    assert seen(Payment | None, {"amountEuro": 5}) == {"amountEuro": 500}


def test_of_two_dicts_that_differ_in_their_names_alone_the_one_that_was_written_is_seen():
    class First(TypedDict):
        amount: Annotated[int, Field(alias="A")]

    class Second(TypedDict):
        amount: Annotated[int, Field(alias="B")]

    assert seen(First | Second, {"B": 5}) == {"B": 5}


def test_of_two_dicts_the_one_whose_parts_fit_is_seen():
    class Paid(TypedDict):
        by: list[Card]

    class Known(TypedDict):
        by: list[Login]

    assert seen(Paid | Known, {"by": [{"user": "a", "password": "hunter2"}]}) == {"by": [{"user": "a", "password": MASKED}]}


def test_of_a_class_and_its_subclass_the_one_that_was_made_is_seen():
    class Gold(Card):
        bonus: int = 1

    for union in (Card | Gold, Gold | Card, Card | Gold | None):
        assert seen(union, {"number": "4", "bonus": 2}) == {"number": "4", "limitEuro": 10, "bonus": 2}

    class Plain(BaseModel):
        kind: Literal["plain"]

    class Grand(Plain):
        kind: Literal["grand"]  # type: ignore[assignment]
        bonus: int = 1

    assert seen(Annotated[Plain | Grand, Field(discriminator="kind")], {"kind": "grand"}) == {"kind": "grand", "bonus": 1}


def test_of_two_dicts_in_a_default_the_one_that_has_all_of_it_is_seen():
    class Short(TypedDict):
        amount: Annotated[int, Field(alias="A")]

    class Long(TypedDict):
        amount: Annotated[int, Field(alias="B")]
        more: int

    def body(it: Short | Long = {"amount": 1, "more": 2}) -> str:  # noqa: B006 - the value is what this is about
        return "done"

    assert of_call(Tool.of(body), {}) == {"it": {"B": 1, "more": 2}}


def test_a_null_beside_objects_stays_one():
    assert seen(list[Card | None], [None, {"number": "4"}]) == [None, {"number": "4", "limitEuro": 10}]


def test_of_a_union_with_what_only_its_author_knows_the_known_form_is_seen():
    union = Annotated[str, AfterValidator(Account)] | list[Card]
    assert seen(union, [{"number": "4"}]) == [{"number": "4", "limitEuro": 10}]
    assert seen(union, "4") == "4"


def test_a_queue_is_seen_as_a_list():
    assert seen(deque[Card], [{"number": "4"}]) == [{"number": "4", "limitEuro": 10}]


def test_json_within_a_text_is_seen_as_what_it_says():
    assert seen(Json[Payment], '{"amountEuro": 5}') == {"amountEuro": 500}


def test_a_tuple_with_an_open_end_is_seen_item_by_item():
    assert seen(tuple[Card, ...], [{"number": "4"}] * 2) == [{"number": "4", "limitEuro": 10}] * 2
    assert seen(tuple[int, Card], [1, {"number": "4"}]) == [1, {"number": "4", "limitEuro": 10}]


def test_what_is_validated_in_steps_is_seen_as_after_the_last():
    class Steps:
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, handler: Any) -> Any:
            return core_schema.chain_schema([core_schema.any_schema(), handler(list[Card])])

    assert seen(Steps, [{"number": "4"}]) == [{"number": "4", "limitEuro": 10}]


def test_keys_that_become_the_same_leave_the_argument_as_it_was_written():
    keys = Annotated[str, AfterValidator(lambda key: 1 if key == "one" else key)]

    def body(first: dict[keys, int], second: Payment) -> str:
        return "done"

    tool = Tool.of(body)
    arguments = {"first": {"one": 1, "1": 2}, "second": {"amountEuro": 5}}
    assert of_call(tool, arguments) == {**arguments, "second": {"amountEuro": 500}}


def test_keys_that_a_validator_changed_are_seen_as_the_tool_gets_them():
    names = Annotated[str, AfterValidator(str.lower)]
    assert seen(dict[names, str], {"Authorization": "x"}) == {"authorization": "x"}
    assert seen(dict[names, Annotated[str, AfterValidator(Account)]], {"A": "x", "b": "y"}) == {"a": "x", "b": "y"}


def test_names_that_only_look_alike_stay_two():
    assert seen(dict[str, int], {"\u00e9": 1, "e\u0301": 2}) == {"\u00e9": 1, "e\u0301": 2}


def test_values_that_python_makes_one_are_seen_as_one():
    assert seen(HttpUrl, "HTTP://INTERNAL/x") == "http://internal/x"
    assert seen(Path, "/etc/./passwd") == "/etc/passwd"
    assert seen(bytes, "+/8=") == "+/8="


def test_a_set_is_seen_in_one_order():
    words = [f"w{number}" for number in range(20)]
    assert seen(set[str], words[::-1]) == seen(frozenset[str], words) == sorted(words)


def test_a_field_read_from_a_path_stands_under_its_own_name_and_further_ones_beside_it():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        it: int = Field(validation_alias=AliasPath("in", 0))

    assert seen(Open, {"in": [5], "more": {"a": 1}}) == {"it": 5, "more": {"a": 1}}

    class Known(BaseModel):
        it: Annotated[str, AfterValidator(Account)] = Field(validation_alias=AliasPath("in", 0))

    assert seen(Known, {"in": ["4"]}) == {"it": "4"}

    @pydantic.dataclasses.dataclass(config=ConfigDict(extra="allow"))
    class Wide:
        it: int

    assert seen(Wide, {"it": 5, "more": {"a": 1}}) == {"it": 5, "more": {"a": 1}}

    class Typed(BaseModel):
        model_config = ConfigDict(extra="allow")
        __pydantic_extra__: dict[str, Annotated[int, AfterValidator(lambda value: value * 100)]]

    assert seen(Typed, {"more": 5}) == {"more": 500}


def test_a_further_key_does_not_pass_for_what_a_field_was_read_from():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        it: Annotated[str, AfterValidator(Account)] = Field(validation_alias=AliasPath("in", 0))
        by: Annotated[str, AfterValidator(Account)] = Field(Account("me"), alias="who")

    assert seen(Open, {"in": ["bad"], "it": "harmless", "by": "harmless"})["it"] == "bad"
    assert seen(Open, {"in": ["bad"], "by": "harmless"})["who"] is None


def test_a_field_that_is_read_by_its_own_name_too_is_seen_as_written():
    class Named(BaseModel):
        model_config = ConfigDict(validate_by_name=True)
        by: Annotated[str, AfterValidator(Account)] = Field(alias="who")

    assert seen(list[Named], [{"by": "a"}, {"who": "b"}]) == [{"who": "a"}, {"who": "b"}]


def test_a_key_that_the_tool_never_gets_is_not_shown():
    class Lax(BaseModel):
        model_config = ConfigDict(extra="ignore")
        amount: int

    assert seen(Lax, {"amount": 5, "dry_run": True}) == {"amount": 5}


def test_aliases_that_are_switched_off_do_not_count():
    class Named(BaseModel):
        model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)
        amount: int = Field(alias="amountEuro")

    assert seen(Named, {"amount": 5}) == {"amount": 5}


# ── what an author's code changed ────────────────────────────────────────────────────────────────────────────────────────


def test_a_validator_that_moves_values_is_followed():
    class Moving(BaseModel):
        cents: int = 0

        @model_validator(mode="before")
        @classmethod
        def move(cls, given: dict[str, Any]) -> dict[str, Any]:
            return {"cents": given["euros"] * 100}

    assert seen(Moving, {"euros": 5}) == {"cents": 500}


def test_what_has_no_form_stands_as_the_model_wrote_it():
    assert seen(list[Annotated[str, AfterValidator(Account)]], ["a", "b"]) == ["a", "b"]
    assert seen(Annotated[str, PlainValidator(lambda text: text.split(","), json_schema_input_type=str)], "a,b") == "a,b"
    assert seen(Annotated[list[str], BeforeValidator(lambda text: text.split(","))], "a,b") == ["a", "b"]
    assert seen(Annotated[Card, AfterValidator(lambda card: Account(card.number))], {"number": "4"}) == {"number": "4"}
    assert seen(Annotated[str, AfterValidator(lambda number: Card(number=number))], "4") == "4"
    assert seen(Annotated[str, AfterValidator(Point)], "4") == "4"
    assert seen(Annotated[Login | None, AfterValidator(Account)], None) is None


def test_a_number_that_json_does_not_have_is_seen_as_a_text():
    assert seen(Annotated[float, AfterValidator(lambda value: value * math.inf)], 5.0) == "Infinity"


def test_parts_that_are_tied_to_each_other_are_seen_as_written():
    class Tree(BaseModel):
        kids: "list[Tree]" = []
        top: "Tree | None" = None

        @model_validator(mode="after")
        def tie(self) -> "Tree":
            self.top = self
            return self

    assert seen(Tree, {"kids": [{}]}) == {"kids": [{}]}


def test_what_a_dataclass_takes_for_its_init_alone_is_seen():
    @dataclasses.dataclass
    class Order:
        item: str
        count: dataclasses.InitVar[int] = 1
        price: int = dataclasses.field(init=False, default=9)

    assert seen(Order, {"item": "a", "count": 50}) == {"item": "a", "count": 50}
    assert seen(Order, {"item": "a"}) == {"item": "a", "count": 1}


def test_a_field_that_only_the_class_sets_is_not_in_the_schema():
    @dataclasses.dataclass
    class Order:
        item: str
        price: int = dataclasses.field(init=False, default=9)

    def body(order: Order) -> str:
        return order.item

    assert list(Tool.of(body).input_schema["$defs"]["Order"]["properties"]) == ["item"]


def test_a_default_of_the_functions_own_is_seen_by_the_names_of_the_schema():
    def body(card: Card = Card(number="4", limitEuro=5)) -> str:  # noqa: B008 - the value is what this is about
        return card.number

    tool = Tool.of(body)
    assert of_call(tool, {}) == {"card": {"number": "4", "limitEuro": 5}}
    assert tool.input_schema["properties"]["card"]["default"] == {"number": "4", "limitEuro": 5}


def test_a_default_that_no_model_could_send_is_seen_all_the_same():
    def body(
        limit: float = math.inf, unit: str = Field("EUR", json_schema_extra={"default": "a lie"}), key: str = Account("")
    ) -> str:
        return "done"

    tool = Tool.of(body)
    assert "default" not in tool.input_schema["properties"]["limit"]
    assert of_call(tool, {}) == {"limit": "Infinity", "unit": "EUR"}


def test_a_default_deep_inside_is_told_as_a_model_would_write_it():
    class Order(BaseModel):
        card: Card = Card(number="4", limitEuro=5)
        key: bytes = b"hi"
        login: Login = Login(user="a", password=SecretStr("hunter2"))

    properties = Tool("body", lambda order: "done", input=Order).input_schema["properties"]
    assert properties["card"]["default"] == {"number": "4", "limitEuro": 5}
    assert properties["key"]["default"] == "aGk="
    assert "default" not in properties["login"], "a mask is no password"


def test_two_fields_under_one_name_are_refused():
    class Two(BaseModel):
        it: int = Field(1, validation_alias=AliasPath("in", 0))
        other: int = Field(2, alias="it")

    def body(two: Two, more: list[Two]) -> str:
        return "done"

    with pytest.raises(ToolDefinitionError, match="'it' and 'other' have one name in the schema, 'it'"):
        Tool.of(body)


def test_judging_does_not_use_an_argument_up():
    def body(ids: Iterable[int]) -> list[int]:
        return list(ids)

    tool = Tool.of(body)
    parsed = tool.input.parse(b'{"ids":[1,2]}', {"ids": [1, 2]})
    assert plain_arguments(tool, parsed, b'{"ids":[1,2]}') == {"ids": [1, 2]}
    assert tool.call(parsed, None) == [1, 2]


def test_what_a_policy_sees_is_its_own():
    def body(it: dict[str, Any]) -> str:
        return "done"

    tool = Tool.of(body)
    parsed = tool.input.parse(b'{"it":{"a":[1]}}', {})
    plain_arguments(tool, parsed, b'{"it":{"a":[1]}}')["it"]["a"].append(2)
    assert parsed == {"it": {"a": [1]}}


# ── explicit inputs ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("form", "arguments", "expected"),
    [
        ({"input": Payment}, {"amountEuro": 5}, {"amountEuro": 500}),
        ({"input": Card}, {"number": "4"}, {"number": "4", "limitEuro": 10}),
        ({"input": Annotated[Card, AfterValidator(lambda card: card.number)]}, {"number": "4"}, {"number": "4", "limitEuro": 10}),
        ({"parse_input": Card.model_validate}, {"number": "4"}, {"number": "4"}),
        ({"input_schema": {"properties": {"a": {"default": 1}, "b": {}}}}, {"b": [2]}, {"a": 1, "b": [2]}),
    ],
)
def test_an_explicit_input_is_seen_by_the_names_of_its_schema(form, arguments, expected):
    assert of_call(Tool("body", lambda parsed: "done", **form), arguments) == expected


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (SecretStr, "hunter2"),
        (SecretStr | None, "hunter2"),
        (list[Login], [{"user": "a", "password": "hunter2"}]),
        (dict[str, SecretStr], {"a": "hunter2"}),
        (Annotated[Login, AfterValidator(lambda login: Account(login.user))], {"user": "a", "password": "hunter2"}),
        (Annotated[SecretStr, AfterValidator(lambda secret: secret.get_secret_value().encode)], "hunter2"),
        (Literal["x"] | Login, {"user": "a", "password": "hunter2"}),
        (Annotated[SecretStr, AfterValidator(SecretStr.get_secret_value)], "hunter2"),
        (Annotated[Secret[str], AfterValidator(lambda secret: secret.get_secret_value())], "hunter2"),
        (Annotated[SecretStr | None, AfterValidator(lambda secret: secret.get_secret_value())], "hunter2"),
        (list[Annotated[SecretStr, AfterValidator(SecretStr.get_secret_value)]], ["hunter2"]),
        (Annotated[list[SecretStr], AfterValidator(lambda given: [each.get_secret_value() for each in given])], ["hunter2"]),
        (list[Annotated[Login, AfterValidator(lambda login: login.password.get_secret_value())]], [LOGIN]),
        (Annotated[Login, AfterValidator(lambda login: login.password.get_secret_value())], LOGIN),
        (tuple[str, Annotated[Login, AfterValidator(lambda login: login.password.get_secret_value())]], ["x", LOGIN]),
    ],
)
def test_a_secret_is_never_seen(annotation, value):
    shown = json.dumps(seen(annotation, value))
    assert "hunter2" not in shown
    assert '{"secret": "**********"}' in shown


def gate_of(body, rules, **settings):
    return Gate(ToolRegistry([Tool.of(body, kind="write")]), policy=RulePolicy.parse(rules), store=MemoryStore(), **settings)


ASK = 'default = "ask"'


async def test_a_secret_reaches_its_tool_and_neither_the_person_nor_the_journal():
    got = []

    async def login(user: str, password: SecretStr) -> str:
        got.append(password.get_secret_value())
        return "in"

    gate = gate_of(login, ASK, content=KeepContent(arguments=True))
    pending = await gate.call(ToolCall("login", {"user": "a", "password": "hunter2"}), caller=ALICE)
    assert isinstance(pending, Pending)
    assert "hunter2" not in (await gate.approval(pending.approval_id)).shown
    assert isinstance(await gate.decide(pending.approval_id, Approve(by="bob")), Succeeded)
    assert got == ["hunter2"]
    kept = [record.content for record in (await gate.store.records(JournalFilter()))[0]]
    assert any(kept)
    assert "hunter2" not in str(kept)


async def test_a_mask_is_not_taken_for_the_secret_when_a_person_sends_it_back():
    async def login(user: str, password: SecretStr) -> str:
        return "in"

    gate = gate_of(login, ASK)
    pending = await gate.call(ToolCall("login", {"user": "a", "password": "hunter2"}), caller=ALICE)
    shown = json.loads((await gate.approval(pending.approval_id)).shown)
    with pytest.raises(InvalidInputError):
        await gate.decide(pending.approval_id, Edit(by="bob", arguments={**shown, "user": "b"}))


@pytest.mark.parametrize("op", ["==", "!=", "starts-with", "contains"])
@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_rule_about_a_secret_only_tightens(op, decision):
    async def login(password: SecretStr) -> str:
        return "in"

    default = "deny" if decision == "allow" else "allow"
    rules = f"""
default = "{default}"
[[rule]]
id = "secret"
decision = "{decision}"
tools = ["login"]
when = [{{ path = "/password", op = "{op}", value = "hunter3" }}]
"""
    outcome = await gate_of(login, rules).call(ToolCall("login", {"password": "hunter2"}), caller=ALICE)
    assert isinstance(outcome, Denied)


# ── through a gate ───────────────────────────────────────────────────────────────────────────────────────────────────────

DENY_LARGE = """
default = "ask"
[[rule]]
id = "large"
decision = "deny"
tools = ["pay"]
when = [{ path = "/card/limitEuro", op = ">", value = 100 }]
"""


async def test_what_is_judged_what_is_shown_what_is_kept_and_what_runs_are_the_same():
    got = []

    async def pay(card: Card) -> str:
        got.append((card.number, card.limit))
        return "paid"

    gate = gate_of(pay, DENY_LARGE, content=KeepContent(arguments=True, redact=("/card/number",)))
    outcome = await gate.call(ToolCall("pay", {"card": {"number": "4", "limitEuro": 500}}), caller=ALICE)
    assert isinstance(outcome, Denied)
    pending = await gate.call(ToolCall("pay", {"card": {"number": "4", "limitEuro": 50}}), caller=ALICE)
    assert json.loads((await gate.approval(pending.approval_id)).shown) == {"card": {"number": "4", "limitEuro": 50}}
    with pytest.raises(ToolDeniedError):
        await gate.decide(pending.approval_id, Edit(by="bob", arguments={"card": {"number": "4", "limitEuro": 500}}))
    with pytest.raises(InvalidInputError):
        await gate.decide(pending.approval_id, Edit(by="bob", arguments={"card": {"number": "4", "limit_eur": 5}}))
    with pytest.raises(InvalidInputError):
        await gate.decide(pending.approval_id, Edit(by="bob", arguments='{"card":{"number":"4","number":"5"}}'))
    edited = {"card": {"number": "5", "limitEuro": 40}}
    assert isinstance(await gate.decide(pending.approval_id, Edit(by="bob", arguments=edited)), Succeeded)
    assert got == [("5", 40)]
    kept = [json.loads(record.content) for record in (await gate.store.records(JournalFilter()))[0] if record.content]
    assert kept[-1] == {"card": {"number": "(redacted)", "limitEuro": 40}}


async def test_an_approval_holds_whatever_the_order_of_a_set_is():
    async def tag(words: set[str]) -> str:
        return "done"

    gate = gate_of(tag, ASK)
    first = await gate.call(ToolCall("tag", {"words": ["a", "b", "c"]}), caller=ALICE)
    second = await gate.call(ToolCall("tag", {"words": ["c", "b", "a"]}), caller=ALICE)
    shown = [(await gate.approval(each.approval_id)).shown for each in (first, second)]
    assert shown == ['{"words": ["a", "b", "c"]}'] * 2


@pytest.mark.parametrize(
    "text", ['{"it": NaN}', '{"it": 1e999}', '{"it": -Infinity}', f'{{"it": {"1" * 5000}}}', '{"it": 1, "it": 2}']
)
@pytest.mark.parametrize("annotation", [Any, float, dict[str, Any]])
async def test_numbers_that_json_does_not_have_are_refused_before_a_policy_sees_them(text, annotation):
    async def pay(it: Any) -> str:
        return "paid"

    pay.__annotations__["it"] = annotation
    gate = Gate(ToolRegistry([Tool.of(pay, kind="write")]), policy=AllowAll(), content=KeepContent(arguments=True))
    outcome = await gate.call(ToolCall("pay", text), caller=ALICE)
    assert outcome.error.status == 400
