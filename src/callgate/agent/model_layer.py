"""The model layer: the one module that knows pydantic-ai. Messages, requests to a model, and what its answer holds.

Source: pydantic-ai's `direct` requests and message types; contract row L1.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast
from warnings import catch_warnings, simplefilter

from pydantic import ValidationError
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_json

from callgate.errors import RunStateError, UsageError
from callgate.gate.stored_runs import whole
from callgate.values import BinaryBlock, ContentBlock, ImageBlock, TextBlock

__all__ = (
    "MODEL_ERRORS",
    "Answer",
    "CallPart",
    "Delta",
    "ModelRequest",
    "OfferedTool",
    "Question",
    "adopted",
    "as_model",
    "ask",
    "dump_messages",
    "ends_with_an_answer",
    "free_ids",
    "last_text",
    "load_messages",
    "open_calls",
    "results_message",
    "user_message",
    "with_ids",
)

MODEL_ERRORS: Final = (ModelAPIError, UnexpectedModelBehavior)
"""What a request to a model raises when the provider does not answer, or not what it should."""

_BROKEN: Final = "INVALID_JSON"
_UNANSWERED: Final = "This call has no result in the history."
_ENDS_WITH_A_REASON: Final = frozenset({"anthropic"})
"""Providers whose streams always say why they end; one that does not was cut off, whatever the model layer makes of it."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """Be a tool as it is shown to a model, under the name `wire`, which providers accept; `name` is the registry's."""

    name: str
    wire: str
    description: str | None
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallPart:
    """Be a call in an answer; `cut_off` says that the answer ended inside of it."""

    id: str
    name: str
    arguments: str | dict[str, Any] | None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Delta:
    """Be a piece of an answer that is being written."""

    kind: Literal["text", "thinking", "call"]
    text: str
    index: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Be a whole answer: the message, its text, its calls, and what it has used (`cost` None: not known)."""

    message: ModelResponse
    text: str
    calls: tuple[CallPart, ...]
    input_tokens: int
    output_tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Question:
    """Be a request to a model."""

    model: "Model[Any]"
    messages: Sequence[ModelMessage]
    tools: Sequence[OfferedTool]
    instructions: str | None
    settings: Mapping[str, Any]


def as_model(model: object) -> "Model[Any]":
    """Make a model of its name, such as "openai:gpt-5"; a model stays what it is.

    Raises:
        UsageError: there is no such model, or what it needs is missing, such as a package or a key.
    """
    if isinstance(model, Model):
        return cast("Model[Any]", model)  # type: ignore[redundant-cast]  # pyright wants it
    if not isinstance(model, str) or not model:
        raise UsageError(f'a model is a name such as "openai:gpt-5", or a model object of pydantic-ai, not {model!r}')
    try:
        return infer_model(model)
    except (UserError, ImportError, ValueError) as error:
        raise UsageError(f"the model {model!r} cannot be used: {error}") from error


async def ask(question: Question) -> AsyncIterator[Delta | Answer]:
    """Ask a model, and give the pieces of its answer as they come, and the whole as the last."""
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.wire, description=tool.description, parameters_json_schema=dict(tool.schema))
            for tool in question.tools
        ]
    )
    messages = list(question.messages)
    if question.instructions is not None and isinstance(messages[-1], ModelRequest):
        messages[-1] = replace(messages[-1], instructions=whole(question.instructions))
    settings = cast("ModelSettings", dict(question.settings)) or None
    request = model_request_stream(question.model, messages, model_settings=settings, model_request_parameters=parameters)
    async with request as stream:
        async for event in stream:
            delta = _delta_of(event)
            if delta is not None:
                yield delta
        response = stream.get()
    if _is_unfinished(response):
        raise UnexpectedModelBehavior("the answer ended in the middle")
    yield _answer_of(_storable(response))


def _is_unfinished(response: ModelResponse) -> bool:
    """Tell whether a stream ended properly as far as the network goes, and still before the answer did."""
    if response.finish_reason is not None:
        return False
    return response.state != "complete" or response.provider_name in _ENDS_WITH_A_REASON


def _storable(response: ModelResponse) -> ModelResponse:
    """Give an answer that can be written as JSON: halves of characters and objects that JSON does not hold become text."""
    parts = [_with_plain_arguments(part) if isinstance(part, ToolCallPart) else part for part in response.parts]
    response = replace(response, parts=parts)
    try:
        ModelMessagesTypeAdapter.dump_json([response])
    except ValueError:
        [written] = dump_messages([response])
        return cast("ModelResponse", load_messages([whole(written)])[0])
    return response


def _with_plain_arguments(part: ToolCallPart) -> ToolCallPart:
    if not isinstance(part.args, dict):
        return part
    try:
        json.dumps(part.args, allow_nan=False, ensure_ascii=False).encode()
        to_json(_nested(part.args))
    except (ValueError, TypeError):
        return replace(part, args=json.dumps(part.args, default=str))
    except RecursionError:
        return replace(part, args="[" * 1000)  # whatever it is, it is too deep: the gate says so
    return part


def _nested(arguments: object) -> object:
    """Put arguments as deep as a message holds them: the model layer writes no more than so many levels."""
    return [[[[[[[[arguments]]]]]]]]


def _delta_of(event: object) -> Delta | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return Delta("text", text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return Delta("thinking", text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
            return Delta("thinking", text)
        case PartStartEvent(index=index, part=ToolCallPart(tool_name=name, args=args)):
            return Delta("call", _text_of(args), index, name)
        case PartDeltaEvent(index=index, delta=ToolCallPartDelta(tool_name_delta=name, args_delta=args)):
            return Delta("call", _text_of(args), index, name or "")
        case _:
            return None


def _text_of(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


def _answer_of(response: ModelResponse) -> Answer:
    parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
    cut = bool(response.parts) and isinstance(response.parts[-1], ToolCallPart) and _may_be_cut_off(response, response.parts[-1])
    calls = tuple(
        CallPart(
            part.tool_call_id, part.tool_name, cast("str | dict[str, Any] | None", part.args), cut_off=cut and part is parts[-1]
        )
        for part in parts
    )
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    usage = response.usage
    return Answer(response, text, calls, usage.input_tokens, usage.output_tokens, _cost_of(response))


def _may_be_cut_off(response: ModelResponse, last: ToolCallPart) -> bool:
    """Tell whether an answer may have ended inside of its last call.

    A beginning of an object is no object, so it is refused anyway. No arguments at all can be meant; where the provider has
    not said why its answer ends, they can be what never came as well.
    """
    if response.finish_reason == "length":
        return True
    if response.provider_name is None or last.args not in {None, ""}:
        return False
    return "finish_reason" not in (response.provider_details or {})


def _cost_of(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except Exception:  # noqa: BLE001 - a price that cannot be told must not end a run
        return None


def with_ids(message: ModelResponse, ids: Sequence[str]) -> ModelResponse:
    """Give an answer whose calls have these ids, and arguments that are JSON objects, as strict providers want them back."""
    given = iter(ids)
    parts = [_repaired(part, next(given)) if isinstance(part, ToolCallPart) else part for part in message.parts]
    return replace(message, parts=parts)


def _repaired(part: ToolCallPart, call_id: str) -> ToolCallPart:
    try:
        part.args_as_dict(raise_if_invalid=True)
    except (AssertionError, ValueError):
        return replace(part, tool_call_id=call_id, args={_BROKEN: part.args})
    return replace(part, tool_call_id=call_id)


def user_message(text: str) -> ModelRequest:
    """Make the message of a user."""
    return ModelRequest(parts=[UserPromptPart(content=whole(text))])


def results_message(results: Sequence[tuple[str, str, str, str, tuple[ContentBlock, ...]]], message: str | None) -> ModelRequest:
    """Make the message with the results of a step, as (name, id, text, outcome, blocks) each, and the user's words behind it."""
    parts: list[Any] = [
        ToolReturnPart(
            tool_name=name,
            tool_call_id=call_id,
            content=whole(text) if not blocks else [whole(text), *map(_content_of, blocks)],
            outcome=cast("Any", outcome),
        )
        for name, call_id, text, outcome, blocks in results
    ]
    if message is not None:
        parts.append(UserPromptPart(content=whole(message)))
    return ModelRequest(parts=parts)


def _content_of(block: ContentBlock) -> UserContent:
    match block:
        case TextBlock(text):
            return text
        case ImageBlock(data, mime_type) | BinaryBlock(data, mime_type):
            return BinaryContent(data=data, media_type=mime_type)


def open_calls(messages: Sequence[ModelMessage]) -> tuple[tuple[CallPart, ...], list[str]]:
    """Give the calls at the end of a history that have no result, and all the ids that the history has used."""
    used = [
        part.tool_call_id
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    last = messages[-1] if messages else None
    if not isinstance(last, ModelResponse):
        return (), used
    return _answer_of(last).calls, used


def ends_with_an_answer(messages: Sequence[ModelMessage]) -> bool:
    """Tell whether a history ends with an answer of the model that makes no calls."""
    return bool(messages) and isinstance(messages[-1], ModelResponse) and not _answer_of(messages[-1]).calls


def last_text(messages: Sequence[ModelMessage]) -> str:
    """Give the text of the newest answer in a history."""
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    return "".join(part.content for part in answers[-1].parts if isinstance(part, TextPart)) if answers else ""


def dump_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Write messages as JSON values."""
    return cast("list[dict[str, Any]]", ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))


def load_messages(written: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """Read messages again.

    Raises:
        RunStateError: they are none.
    """
    try:
        return ModelMessagesTypeAdapter.validate_python(list(written))
    except ValidationError as error:
        raise RunStateError("the stored run is damaged: its messages are none of the model layer") from error


# ── histories that are handed in ─────────────────────────────────────────────────────────────────────────────────────────


def adopted(messages: Sequence[object]) -> list[ModelMessage]:
    """Take a history over: a call that nobody answered gets a result, and calls at the end get ids that were not there.

    Raises:
        UsageError: it holds what is no message.
    """
    for message in messages:
        if not isinstance(message, ModelRequest | ModelResponse):
            raise UsageError(f"a message is a ModelRequest or a ModelResponse of pydantic-ai, not {type(message).__name__}")
    history = cast("list[ModelMessage]", list(messages))
    _check_storable(history)
    answered: list[ModelMessage] = []
    missing: list[ToolReturnPart] = []
    for place, message in enumerate(history):
        if missing and isinstance(message, ModelRequest):
            answered.append(replace(message, parts=[*missing, *message.parts]))
        else:
            answered += [ModelRequest(parts=missing), message] if missing else [message]
        missing = _unanswered(message, _results_behind(history, place)) if place + 1 < len(history) else []
    last = answered[-1] if answered else None
    if isinstance(last, ModelResponse):
        used = set(open_calls(answered[:-1])[1])
        answered[-1] = with_ids(_storable(last), free_ids(_answer_of(last).calls, "0", used))
    return answered


def _check_storable(history: Sequence[ModelMessage]) -> None:
    try:
        with catch_warnings():
            simplefilter("error")  # the model layer warns of a part that is none, and writes it all the same
            load_messages(dump_messages(history))
    except (ValueError, TypeError, RecursionError, RunStateError, UserWarning) as error:
        raise UsageError("the messages hold what cannot be stored: parts are those of pydantic-ai, with JSON in them") from error


def _results_behind(history: Sequence[ModelMessage], place: int) -> set[str]:
    found: set[str] = set()
    for message in history[place + 1 :]:
        if isinstance(message, ModelResponse):
            break
        found |= {str(getattr(part, "tool_call_id", "")) for part in message.parts}
    return found


def _unanswered(message: ModelMessage, answered: set[str]) -> list[ToolReturnPart]:
    parts = message.parts if isinstance(message, ModelResponse) else ()
    return [
        ToolReturnPart(part.tool_name, _UNANSWERED, part.tool_call_id, outcome="interrupted")
        for part in parts
        if isinstance(part, ToolCallPart) and part.tool_call_id not in answered
    ]


def free_ids(calls: Iterable[CallPart], place: str, used: set[str]) -> list[str]:
    """Give each call of an answer an id that its run has not had."""
    ids: list[str] = []
    for number, call in enumerate(calls, 1):
        ids.append(_free_id(call.id, f"{place}.{number}", used))
        used.add(ids[-1])
    return ids


def _free_id(wanted: str, place: str, used: set[str]) -> str:
    """Give a call an id that its run has not had: the model's own where it is one."""
    if wanted and wanted not in used:
        return wanted
    name = f"{wanted or 'call'}~{place}"
    while name in used:
        name += "~"
    return name
