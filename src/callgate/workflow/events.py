"""What happens in a run of a workflow, as it happens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from callgate.gate import Outcome

__all__ = ("Delivered", "NodeFinished", "NodeStarted", "Paused", "RoundStarted", "ToolCalled", "WorkflowEvent")


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """Tell that a round begins; rounds count from 1."""

    round: int


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """Tell that a node begins."""

    node: str
    round: int


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """Tell that a node has ended and that the state with its patch is stored."""

    node: str
    round: int
    patch: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """Tell how a tool call of a node ended."""

    node: str
    round: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Paused:
    """Tell that the run waits for people; the last event of its stream."""

    run_id: str
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Give what the run delivers; the last event of its stream."""

    value: Any = field(repr=False)


WorkflowEvent: TypeAlias = RoundStarted | NodeStarted | NodeFinished | ToolCalled | Paused | Delivered
