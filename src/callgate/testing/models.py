"""A model by script: it answers turn by turn what it was told to, streaming, without a provider. It needs the extra `agent`."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from callgate.errors import UsageError
from callgate.values import ToolCall

__all__ = ("Says", "Turn", "calls", "scripted_model")


@dataclass(frozen=True, slots=True)
class Says:
    """Be a turn in which the model says a text and, with `then`, makes calls."""

    text: str
    then: tuple[ToolCall, ...] = ()


Turn: TypeAlias = str | ToolCall | Sequence[ToolCall] | Says
"""A text, one call, several calls side by side, or a text with calls."""


def calls(*made: tuple[str, Mapping[str, Any] | str], prefix: str = "c") -> list[ToolCall]:
    """Write the calls of a turn as pairs of a name and its arguments; they are numbered."""
    return [ToolCall(name, arguments, f"{prefix}{number}") for number, (name, arguments) in enumerate(made, 1)]


def scripted_model(*turns: Turn) -> Any:
    """Make a model object that gives these turns one after the other, streaming or whole, by the answers in its history.

    A turn is chosen by the history alone, so a run that is resumed in another process goes on where it was. Behind the last turn
    the model says "done".
    """
    try:
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart  # noqa: PLC0415 - an optional extra
        from pydantic_ai.models.function import DeltaToolCall, FunctionModel  # noqa: PLC0415 - the same one
    except ModuleNotFoundError as error:
        raise UsageError("scripted_model needs pydantic-ai-slim: install callgate with its extra agent") from error
    script = [_as_says(turn) for turn in turns]

    def turn_after(messages: list[Any]) -> Says:
        number = sum(1 for message in messages if message.kind == "response")
        return script[number] if number < len(script) else Says("done")

    async def stream(messages: list[Any], _info: Any) -> AsyncIterator[Any]:
        turn = turn_after(messages)
        for place, word in enumerate(turn.text.split(" ") if turn.text else ()):
            yield f" {word}" if place else word
        for place, call in enumerate(turn.then):
            yield {place: DeltaToolCall(call.name, _written(call), tool_call_id=call.id)}

    async def answer(messages: list[Any], _info: Any) -> Any:
        turn = turn_after(messages)
        said = [TextPart(turn.text)] if turn.text else []
        made = [ToolCallPart(call.name, _written(call)) for call in turn.then]
        for part, call in zip(made, turn.then, strict=True):
            part.tool_call_id = call.id or part.tool_call_id
        return ModelResponse(parts=[*said, *made])

    return FunctionModel(answer, stream_function=stream)


def _written(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {})


def _as_says(turn: Turn) -> Says:
    if isinstance(turn, Says):
        return turn
    if isinstance(turn, str):
        return Says(turn)
    return Says("", (turn,) if isinstance(turn, ToolCall) else tuple(turn))
