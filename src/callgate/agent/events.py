"""What happens in a run, as it happens: a view on the one loop. Source: contract row L1."""

from dataclasses import dataclass, field
from typing import TypeAlias

from callgate.agent.run import Run
from callgate.gate import Outcome, Pending
from callgate.values import ToolCall

__all__ = (
    "AgentEvent",
    "CallFinished",
    "CallPending",
    "CallProgress",
    "CallStarted",
    "ModelAnswered",
    "RunEnded",
    "RunPaused",
    "StepStarted",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
)


@dataclass(frozen=True, slots=True)
class StepStarted:
    """Tell that the model is asked; `offered` are the names of the tools that this step offers."""

    step: int
    offered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Give the next piece of the model's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """Give the next piece of the model's reasoning, where the provider shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """Give the next piece of a call that the model is writing: `index` tells the parts of one answer apart."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """Tell that the model's answer is whole and stored; the tokens are those of this step."""

    step: int
    input_tokens: int
    output_tokens: int
    calls: int


@dataclass(frozen=True, slots=True)
class CallStarted:
    """Tell that a call goes to the gate."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallProgress:
    """Tell that a tool has come further; `item` is what it said."""

    call_id: str | None
    item: object = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallFinished:
    """Tell how a call ended."""

    call: ToolCall
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CallPending:
    """Tell that a call waits for a person."""

    call: ToolCall
    outcome: Pending


@dataclass(frozen=True, slots=True)
class RunPaused:
    """Tell that the run is stored and waits for people; the last event of its stream."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Tell that the run is over; the last event of its stream."""

    run: Run


AgentEvent: TypeAlias = (
    StepStarted
    | TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | ModelAnswered
    | CallStarted
    | CallProgress
    | CallFinished
    | CallPending
    | RunPaused
    | RunEnded
)
