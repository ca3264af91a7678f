"""Nothing that a model sends, and nothing that a tool gives or raises, comes out of a registry but as a `ToolError`.

Rows P8 and P9, cases e2, e9, e10. Each call is made through one door of the registry with every destination of diagnostics
listening to content. Afterwards there must be one receipt, JSON-serialisable, and a text that UTF-8 can hold.
"""

import asyncio
import builtins
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import gc
import itertools
import json
import logging
import sys
import traceback
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, field_serializer, field_validator

import callgate
from callgate import AbortedError, CallContext, Tool, ToolAnswer, ToolContext, ToolError, ToolRegistry, format_tool_error, tool
from callgate.diagnostics import DiagnosticContext, LoggingDestination, MemoryDestination, OpenTelemetryDestination

calls = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


class Oops(Exception):
    pass


class Base(BaseException):
    pass


def oops(*args, **kwargs):
    raise Oops("from a method of the object")


def base(*args, **kwargs):
    raise Base("from a method of the object")


# ── doors ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def invoke(registry, *call, **keywords):
    try:
        return registry.invoke(*call, **keywords).text
    except ToolError as error:
        return format_tool_error(error)
    except BaseException as error:
        escaped = error
    return came_out(escaped)


def ainvoke(registry, *call, **keywords):
    async def run():
        try:
            return (await registry.ainvoke(*call, **keywords)).text
        except ToolError as error:
            return format_tool_error(error)

    return outside(run)


def answer(registry, *call, **keywords):
    async def run():
        return (await registry.answer(*call, **keywords)).text

    return outside(run)


def outside(run):
    """Run a coroutine; what it raises does not pass through the loop's own machinery, which would show it."""
    escaped = []

    async def hold():
        try:
            return await run()
        except BaseException as error:
            escaped.append(error)

    text = asyncio.run(hold())
    return came_out(escaped[0]) if escaped else text


def came_out(error):
    """Fail by the type and the place of what came out: the rest of it may raise when it is shown."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    last = next(each for each in reversed(traceback.extract_tb(error.__traceback__)) if "callgate" in each.filename)
    pytest.fail(f"{type(error).__name__} came out, raised at {place.name}:{place.lineno}, by way of {last.name}:{last.lineno}")


DOORS = (invoke, ainvoke, answer)


@pytest.fixture(autouse=True)
def unraised(monkeypatch):
    """Let pytest not show objects that nobody awaited or that fail as they go: showing these raises as well."""
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    """Let the log of the thousands of failures be formatted, and be shown to nobody."""
    logger = logging.getLogger("tests.no_input_escapes")
    handler = logging.Handler()
    handler.emit = handler.format
    handler.handleError = lambda record: None
    logger.addHandler(handler)
    logger.propagate = False
    yield
    logger.removeHandler(handler)
    logger.propagate = True


def everybody_listens():
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    return DiagnosticContext.of(
        LoggingDestination("tests.no_input_escapes", success_level=logging.WARNING, content=True),
        MemoryDestination(content=True),
        OpenTelemetryDestination(tracer, content=True),
    )


def check(door, tools, *call, user_context=None):
    """Make a call and look at what came of it."""
    registry = ToolRegistry(tools, diagnostics=everybody_listens())
    text = door(registry, *call, user_context=user_context, call_context=CallContext(run_id="r", call_id="c"))
    assert text.encode()
    [receipt] = registry.events
    assert json.loads(json.dumps(dataclasses.asdict(receipt)))["call_id"] == "c"
    assert receipt.input_digest is None or json.dumps(receipt.input_digest)
    assert receipt.status in {"succeeded", "failed", "denied"}
    assert (receipt.status == "succeeded") == (receipt.error_code is None)
    assert registry.running() == ()
    assert registry.abandoned() == {}
    slots = [entry.slots for entry in registry._catalog.entries.values()]
    assert [each.held for each in slots] == [0] * len(slots)
    return receipt


# ── what a tool gives or raises, in every place where it can run ─────────────────────────────────────────────────────────


@tool
async def give_async(context: ToolContext):
    return context.user_context()


@tool
async def give_later(context: ToolContext):
    await asyncio.sleep(0)
    return context.user_context()


@tool(run_in="inline")
def give_inline(context: ToolContext):
    return context.user_context()


@tool(run_in="thread")
def give_in_thread(context: ToolContext):
    return context.user_context()


@tool(run_in="inline")
def yield_it(context: ToolContext):
    yield 1
    yield context.user_context()


@tool
async def yield_async(context: ToolContext):
    yield 1
    yield context.user_context()


@tool(run_in="inline")
def give_answer(context: ToolContext):
    return ToolAnswer(context.user_context())


@tool
async def progress_with_it(context: ToolContext):
    context.progress(context.user_context())


GIVERS = (give_async, give_later, give_inline, give_in_thread, yield_it, yield_async, give_answer, progress_with_it)


# ── objects whose own code gets in the way ───────────────────────────────────────────────────────────────────────────────

DUNDERS = [
    "__repr__",
    "__str__",
    "__bytes__",
    "__format__",
    "__bool__",
    "__len__",
    "__iter__",
    "__next__",
    "__contains__",
    "__getitem__",
    "__hash__",
    "__eq__",
    "__lt__",
    "__int__",
    "__float__",
    "__index__",
    "__getattr__",
    "__reduce_ex__",
    "__reduce__",
    "__copy__",
    "__deepcopy__",
    "__dir__",
    "__call__",
    "__fspath__",
    "__await__",
    "__aiter__",
    "__anext__",
    "__enter__",
    "__exit__",
    "__sizeof__",
    "__instancecheck__",
    "__complex__",
    "__round__",
    "__iter__",
    "__reversed__",
]
METHODS = [
    "items",
    "keys",
    "values",
    "get",
    "encode",
    "decode",
    "isoformat",
    "model_dump",
    "dict",
    "json",
    "to_dict",
    "close",
    "send",
    "throw",
    "tobytes",
]


def spoilt(kind, names=(*DUNDERS, *METHODS), *, by=oops, **extra):
    """Make a subclass of `kind` whose methods of these names raise."""
    overridden = {name: by for name in names if kind is object or hasattr(kind, name) or name in {"__getattr__", "__reduce__"}}
    return type(f"Spoilt{kind.__name__}", (kind,), {**overridden, **extra})


def raising_class(error):
    return property(functools.partial(error))


def lying(about):
    return type("Lying", (), {"__class__": property(lambda self: about)})


class BadEnum(enum.Enum):
    A = spoilt(object, ("__str__", "__repr__", "__reduce_ex__"))()


@dataclasses.dataclass
class BadDataclass:
    a: int = 1

    def __getattribute__(self, name):
        if name == "a":
            oops()
        return super().__getattribute__(name)


class BadModel(BaseModel):
    a: int = 1

    @field_serializer("a")
    def write(self, value):
        oops()


class BadZone(dt.tzinfo):
    utcoffset = dst = tzname = oops


class BadAnswer(ToolAnswer):
    __slots__ = ()
    value = property(oops)
    text = property(oops)

    def __init__(self):
        pass


class BadMapping(collections.abc.Mapping):
    __getitem__ = __len__ = __iter__ = oops


class EndlessKeys(collections.abc.Mapping):
    def __getitem__(self, key):
        return oops()

    def __len__(self):
        return 1

    def __iter__(self):
        yield "a"


class BadAwait:
    __await__ = oops


class NoAwait:
    def __await__(self):
        return 5


class YieldsNonsense:
    def __await__(self):
        yield "not a future"


def raising_generator():
    yield 1
    oops()


async def raising_async_generator():
    yield 1
    oops()


pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture(autouse=True, scope="module")
def _collected_here():
    """Let the coroutines that hostile values hide be collected here: elsewhere Python's remark on them fails another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


async def raising_coroutine():
    oops()


async def giving_a_coroutine():
    return raising_coroutine()


def cycle():
    looped = []
    looped.append({"a": looped})
    return looped


def deep():
    nested = []
    for _ in range(50_000):
        nested = [nested]
    return nested


def released():
    view = memoryview(b"abc")
    view.release()
    return view


SPOILT_KINDS = (object, str, int, float, bytes, list, tuple, dict, set, frozenset, decimal.Decimal)
HOSTILE = [
    *(spoilt(kind) for kind in SPOILT_KINDS),
    lambda: spoilt(dt.date)(2024, 1, 1),
    *(lambda kind=kind: spoilt(kind)([1, "a"]) for kind in (list, tuple, set)),
    lambda: spoilt(dict)({"a": 1}),
    lambda: spoilt(str)("text"),
    lambda: spoilt(object, ("__getattribute__",))(),
    lambda: type("BadClass", (), {"__class__": property(oops)})(),
    *(
        lambda about=about: lying(about)()
        for about in (ToolAnswer, dict, list, str, int, bytes, type(None), BaseModel, ToolError)
    ),
    lambda: BadEnum.A,
    BadDataclass,
    BadModel,
    lambda: BadModel,
    lambda: dt.datetime(2024, 1, 1, tzinfo=BadZone()),
    BadAnswer,
    lambda: ToolAnswer(1, text=object()),
    lambda: ToolAnswer(1, text=spoilt(str)("x")),
    lambda: ToolAnswer(1, text="\ud800"),
    lambda: ToolAnswer(1, text=""),
    lambda: ToolAnswer(1, blocks=(object(),)),
    lambda: ToolAnswer(1, blocks=5),
    lambda: ToolAnswer(1, blocks=spoilt(list)([1])),
    lambda: ToolAnswer(1, artifacts=5),
    lambda: ToolAnswer(ToolAnswer(1)),
    lambda: ToolAnswer(spoilt(object)()),
    lambda: callgate.ImageBlock(5, None),
    lambda: callgate.TextBlock(object()),
    lambda: callgate.TextBlock("\ud800"),
    lambda: callgate.BinaryBlock(spoilt(bytes)(b"x"), "\ud800"),
    BadMapping,
    EndlessKeys,
    BadAwait,
    NoAwait,
    YieldsNonsense,
    raising_generator,
    raising_async_generator,
    raising_coroutine,
    giving_a_coroutine,
    cycle,
    deep,
    released,
    lambda: {deep: 1},
    lambda: {1: 1, "1": 2},
    lambda: {1, "a", None},
    lambda: float("nan"),
    lambda: decimal.Decimal("sNaN"),
    lambda: 10**10_000,
    lambda: "\ud800 \udfff",
    lambda: {"\ud800": "\udfff"},
    lambda: object,
    lambda: NotImplemented,
    lambda: ...,
    lambda: Oops("an exception as a value"),
    lambda: asyncio,
    lambda: iter([1]),
    lambda: range(3),
    lambda: print,
    lambda: collections.Counter("aab"),
    lambda: [spoilt(object)(), BadDataclass()],
    lambda: {"a": [BadMapping()]},
]


@pytest.mark.parametrize("giver", GIVERS, ids=lambda giver: giver.__name__)
@pytest.mark.parametrize("make", HOSTILE, ids=[f"{index}-{make.__name__}" for index, make in enumerate(HOSTILE)])
def test_a_hostile_output_is_an_answer_or_a_tool_error(giver, make):
    for door in DOORS:
        check(door, [giver], giver.__name__, user_context=make)


@pytest.mark.parametrize("kind", SPOILT_KINDS)
def test_an_output_whose_methods_raise_what_is_no_exception_is_an_answer_or_a_tool_error(kind):
    for door in DOORS:
        check(door, [give_inline], "give_inline", user_context=spoilt(kind, by=base))


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=20)
keys = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5) | st.binary(max_size=3)
odd = plain | st.decimals() | st.datetimes() | st.timedeltas() | st.uuids() | st.fractions() | st.complex_numbers()


class Later:
    """Stand for a hostile object while hypothesis draws, for it shows what it has drawn."""

    def __init__(self, make):
        self.make = make


def made(drawn):
    """Put the hostile objects in their places."""
    if type(drawn) is Later:
        return drawn.make()
    if type(drawn) in {list, tuple}:
        return type(drawn)(map(made, drawn))
    return {key: made(value) for key, value in drawn.items()} if type(drawn) is dict else drawn


values = st.recursive(
    odd | st.sampled_from(HOSTILE).map(Later),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)


@calls
@given(door=st.sampled_from(DOORS), giver=st.sampled_from(GIVERS), value=values)
def test_any_output_is_an_answer_or_a_tool_error(door, giver, value):
    check(door, [giver], giver.__name__, user_context=lambda: made(value))


class Declared(BaseModel):
    a: int

    @field_validator("a", mode="before")
    @classmethod
    def look(cls, value):
        if value == "oops":
            oops()
        return value


@calls
@given(door=st.sampled_from(DOORS), value=values | st.just({"a": "oops"}) | st.just({"a": 1}))
def test_any_output_of_a_tool_with_a_declared_output_is_an_answer_or_a_tool_error(door, value):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for form in ({"output": Declared}, {"output_schema": schema}, {"parse_output": lambda output: output["a"]}):
        giver = Tool("giver", lambda parsed: made(value), input_schema={"type": "object"}, run_in="inline", **form)
        check(door, [giver], "giver")


# ── exceptions ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def builtin_errors():
    kinds = [each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, BaseException)]
    spared = (KeyboardInterrupt, SystemExit, BaseExceptionGroup, UnicodeError)
    return [kind for kind in kinds if not issubclass(kind, spared)]


def uninitialised(kind, **attributes):
    """Make an error whose class never called the constructor of ours, as a subclass may forget to."""
    return type("Forgetful", (kind,), {"__init__": lambda self: None, **attributes})()


def chained():
    first, second = Oops("first"), Oops("second")
    first.__cause__, second.__cause__ = second, first
    return first


ERRORS = [
    *builtin_errors(),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800"),
    asyncio.CancelledError,
    asyncio.TimeoutError,
    asyncio.InvalidStateError,
    Oops,
    Base,
    lambda: ExceptionGroup("group", [Oops(), ExceptionGroup("inner", [ValueError("\ud800")])]),
    lambda: BaseExceptionGroup("group", [Base(), asyncio.CancelledError()]),
    lambda: BaseExceptionGroup("group", [KeyboardInterrupt(), SystemExit(3)]),
    lambda: ExceptionGroup("group", [ToolError("inside a group")]),
    *(
        (lambda kind=kind, by=by: spoilt(kind, ("__str__", "__repr__", "__reduce__", "__hash__", "__eq__"), by=by)("x"))
        for kind in (Exception, BaseException, ToolError, TimeoutError)
        for by in (oops, base)
    ),
    lambda: type("BadClass", (Exception,), {"__class__": property(oops)})(),
    *(
        (lambda about=about: type("Lying", (Exception,), {"__class__": property(lambda self: about)})())
        for about in (ToolError, KeyboardInterrupt, SystemExit, dict)
    ),
    lambda: type("Frozen", (Exception,), {"__setattr__": oops})(),
    lambda: type("Frozen", (ToolError,), {"__setattr__": oops, "__init__": lambda self: None})(),
    lambda: type("BadNotes", (Exception,), {"__notes__": property(oops)})(),
    chained,
    lambda: ToolError(""),
    lambda: ToolError("\ud800"),
    lambda: ToolError(spoilt(str)("x")),
    lambda: ToolError(None),
    lambda: ToolError("x" * 100_000),
    lambda: ToolError("x", code=object()),
    lambda: ToolError("x", code="\ud800"),
    lambda: ToolError("x", code=spoilt(str)("x")),
    lambda: ToolError("x", status="500"),
    lambda: ToolError("x", status=object()),
    lambda: ToolError("x", status=float("nan")),
    lambda: ToolError("x", try_other_arguments=object()),
    lambda: uninitialised(ToolError),
    lambda: uninitialised(callgate.InvalidInputError),
    lambda: uninitialised(ToolError, code=property(oops)),
    lambda: uninitialised(ToolError, status=property(oops)),
    lambda: uninitialised(ToolError, user_message=property(oops)),
    lambda: uninitialised(ToolError, try_other_arguments=property(oops)),
    lambda: uninitialised(ToolError, invocation_id=property(oops)),
    lambda: callgate.ToolDeniedError("x", "y"),
    lambda: callgate.ToolTimeoutError("x", 1.0, "call"),
    lambda: callgate.ToolUnavailableError("x", "y"),
    lambda: callgate.UsageError("x"),
    lambda: callgate.ToolDefinitionError("x", "y"),
    AbortedError,
]


@tool
async def raise_async(context: ToolContext):
    raise context.user_context


@tool
async def raise_later(context: ToolContext):
    await asyncio.sleep(0)
    raise context.user_context


@tool
async def raise_after_a_task(context: ToolContext):
    await asyncio.create_task(asyncio.sleep(0))
    raise context.user_context


@tool(run_in="inline")
def raise_inline(context: ToolContext):
    raise context.user_context


@tool(run_in="thread")
def raise_in_thread(context: ToolContext):
    raise context.user_context


@tool(run_in="inline")
def raise_between_items(context: ToolContext):
    yield 1
    raise context.user_context


@tool
async def raise_between_async_items(context: ToolContext):
    yield 1
    raise context.user_context


@tool
async def raise_in_a_task_group(context: ToolContext):
    async def fail():
        raise context.user_context

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        await fail()


def raise_for_an_awaitable(context: ToolContext):
    async def fail():
        raise context.user_context

    return fail()


RAISERS = (
    raise_async,
    raise_later,
    raise_after_a_task,
    raise_inline,
    raise_in_thread,
    raise_between_items,
    raise_between_async_items,
    raise_in_a_task_group,
    raise_for_an_awaitable,
)


@pytest.mark.parametrize("make", ERRORS, ids=[f"{index}-{make.__name__}" for index, make in enumerate(ERRORS)])
def test_whatever_a_tool_raises_is_a_tool_error(make):
    for door, raiser in itertools.product(DOORS, RAISERS):
        receipt = check(door, [raiser], raiser.__name__, user_context=make())
        assert receipt.status in {"failed", "denied"}


@given(
    door=st.sampled_from(DOORS),
    raiser=st.sampled_from(RAISERS),
    makers=st.lists(st.sampled_from(ERRORS), min_size=1, max_size=4),
    text=st.text(st.characters()),
)
@calls
def test_groups_and_chains_of_errors_are_one_tool_error(door, raiser, makers, text):
    errors = [make() for make in makers]
    for inner, outer in itertools.pairwise(errors):
        if type(outer).__setattr__ is not oops:
            outer.__cause__ = inner
    group = BaseExceptionGroup(text, errors)
    assert check(door, [raiser], raiser.__name__, user_context=group).status == "failed"


@pytest.mark.parametrize("make", ERRORS, ids=[f"{index}-{make.__name__}" for index, make in enumerate(ERRORS)])
def test_whatever_an_authors_parser_raises_is_a_tool_error(make):
    def fail(value):
        raise make()

    reads = Tool("reads", lambda parsed: 1, parse_input=fail, run_in="inline")
    writes = Tool("writes", lambda parsed: 1, input_schema={"type": "object"}, parse_output=fail, run_in="inline")
    for door, broken in itertools.product(DOORS, (reads, writes)):
        assert check(door, [broken], broken.name, {"a": 1}).status in {"failed", "denied"}


@pytest.mark.parametrize("make", ERRORS, ids=[f"{index}-{make.__name__}" for index, make in enumerate(ERRORS)])
def test_whatever_a_validator_of_a_model_raises_is_a_tool_error(make):
    class Input(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def look(cls, value):
            raise make()

    takes = Tool("takes", lambda parsed: 1, input=Input, run_in="inline")
    for door in DOORS:
        assert check(door, [takes], "takes", {"a": 1}).status in {"failed", "denied"}


# ── names and arguments ──────────────────────────────────────────────────────────────────────────────────────────────────


@tool(run_in="inline")
def take(a: int, b: list[str] | None = None, c: dict[str, float] | None = None):
    return [a, b, c]


@tool
async def take_any(a: Any = None, *, b: object = None):
    return None


SCHEMA_TOOL = Tool(
    "take_schema",
    lambda parsed: 1,
    input_schema={
        "type": "object",
        "properties": {"a": {"type": ["integer", "null"]}, "b": {"enum": [1, "x"]}},
        "required": ["a"],
    },
    run_in="inline",
)
CALLABLE_TOOL = Tool("take_callable", lambda parsed: 1, parse_input=lambda value: value["a"], run_in="inline")
TAKERS = (take, take_any, SCHEMA_TOOL, CALLABLE_TOOL)
NAMES = ("take", "take_any", "take_schema", "take_callable")

names = (
    st.sampled_from((*NAMES, "functions.take", "take()", "TAKE", "take-any", " take ", "take\x00", "", "\ud800", "é" * 500))
    | st.text(st.characters())
    | values
)
json_values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
)
objects = st.dictionaries(st.sampled_from("abc") | st.text(st.characters(), max_size=3), json_values, max_size=4)
texts = objects.map(lambda value: json.dumps(value, default=str))
broken_texts = st.builds(lambda text, start, end: text[start : len(text) - end], texts, st.integers(0, 3), st.integers(0, 3))
arguments = (
    texts
    | broken_texts
    | texts.map(str.encode)
    | objects
    | st.text(st.characters())
    | st.binary(max_size=30)
    | values
    | st.dictionaries(keys, values, max_size=3)
    | st.sampled_from(['{"a":' * 5_000, "[" * 100_000, '{"a": 1e999}', '{"a": 1, "a": 2}', '{"a": "\\ud800"}', '{"a": NaN}'])
)


@calls
@given(door=st.sampled_from(DOORS), name=names)
def test_any_name_is_answered_or_refused(door, name):
    check(door, TAKERS, made(name), {"a": 1})


@settings(calls, max_examples=400)
@given(door=st.sampled_from(DOORS), name=st.sampled_from(NAMES), raw=arguments)
@example(door=answer, name="take", raw='{"a": 1e400}')
def test_any_arguments_are_answered_or_refused(door, name, raw):
    check(door, TAKERS, name, made(raw))


@pytest.mark.parametrize("make", HOSTILE, ids=[f"{index}-{make.__name__}" for index, make in enumerate(HOSTILE)])
@pytest.mark.parametrize("place", ["name", "arguments", "an argument"])
def test_hostile_objects_as_names_and_arguments_are_answered_or_refused(make, place):
    thing = make()
    call = {"name": (thing, {"a": 1}), "arguments": ("take", thing), "an argument": ("take", {"a": thing})}[place]
    for door in DOORS:
        check(door, TAKERS, *call)


@calls
@given(
    door=st.sampled_from((ainvoke, answer)),
    raw=arguments,
    reason=st.sampled_from([Oops, Base, ValueError, AbortedError, asyncio.CancelledError, lambda: ToolError("a reason")]),
)
def test_of_an_aborted_call_the_reason_comes_out_and_nothing_else(door, raw, reason):
    """The input is validated first; then the signal's own reason is raised, whichever it is."""
    controller, given_reason = callgate.AbortController(), reason()
    controller.abort(given_reason)
    registry = ToolRegistry(TAKERS, diagnostics=everybody_listens())
    ends = []

    async def call():
        try:
            ends.append(await getattr(registry, door.__name__)("take", made(raw), signal=controller.signal))
        except BaseException as error:
            ends.append(error)

    asyncio.run(call())
    [end], [receipt] = ends, registry.events
    if receipt.status == "aborted":
        assert end is given_reason
    elif door is answer:
        assert end.is_error
    else:
        assert isinstance(end, callgate.InvalidInputError)
