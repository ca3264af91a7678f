"""The model layer: the one module that knows pydantic-ai. Messages, requests to a model, and what its answer holds.

Source: pydantic-ai's `direct` requests and message types; contract row L1.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior
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

from callgate.values import BinaryBlock, ContentBlock, ImageBlock, TextBlock

__all__ = (
    "MODEL_ERRORS",
    "Answer",
    "CallPart",
    "Delta",
    "ModelRequest",
    "OfferedTool",
    "Question",
    "as_model",
    "ask",
    "dump_messages",
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
    """Make a model of its name, such as "openai:gpt-5"; a model stays what it is."""
    return cast("Model[Any]", model if isinstance(model, Model) else infer_model(cast("str", model)))  # type: ignore[redundant-cast]  # pyright wants it


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
        messages[-1] = replace(messages[-1], instructions=question.instructions)
    settings = cast("ModelSettings", dict(question.settings)) or None
    request = model_request_stream(question.model, messages, model_settings=settings, model_request_parameters=parameters)
    async with request as stream:
        async for event in stream:
            delta = _delta_of(event)
            if delta is not None:
                yield delta
        response = stream.get()
    yield _answer_of(response)


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
    cut = response.finish_reason == "length" and bool(response.parts) and isinstance(response.parts[-1], ToolCallPart)
    calls = tuple(
        CallPart(
            part.tool_call_id, part.tool_name, cast("str | dict[str, Any] | None", part.args), cut_off=cut and part is parts[-1]
        )
        for part in parts
    )
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    usage = response.usage
    return Answer(response, text, calls, usage.input_tokens, usage.output_tokens, _cost_of(response))


def _cost_of(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (AssertionError, LookupError, ValueError):
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
    return ModelRequest(parts=[UserPromptPart(content=text)])


def results_message(results: Sequence[tuple[str, str, str, str, tuple[ContentBlock, ...]]], message: str | None) -> ModelRequest:
    """Make the message with the results of a step, as (name, id, text, outcome, blocks) each, and the user's words behind it."""
    parts: list[Any] = [
        ToolReturnPart(
            tool_name=name,
            tool_call_id=call_id,
            content=text if not blocks else [text, *map(_content_of, blocks)],
            outcome=cast("Any", outcome),
        )
        for name, call_id, text, outcome, blocks in results
    ]
    if message is not None:
        parts.append(UserPromptPart(content=message))
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


def last_text(messages: Sequence[ModelMessage]) -> str:
    """Give the text of the newest answer in a history."""
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    return "".join(part.content for part in answers[-1].parts if isinstance(part, TextPart)) if answers else ""


def dump_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Write messages as JSON values."""
    return cast("list[dict[str, Any]]", ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))


def load_messages(written: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """Read messages again."""
    return ModelMessagesTypeAdapter.validate_python(list(written))
