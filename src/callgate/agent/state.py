"""`RunState`: a run as one versioned JSON value, from which any process can go on. Source: contract rows A3, A4; case f4."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from callgate.gate.content import blocks_of
from callgate.gate.stored_runs import StoredState

__all__ = ("CallState", "RunState", "StoredLimits", "StoredResult")

_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StoredResult(_Strict):
    """Be what the model reads of a call: its text, whether it failed, and content blocks as they are stored."""

    text: str
    outcome: Literal["success", "failed", "denied", "interrupted"]
    blocks: list[dict[str, str]] = []

    @field_validator("blocks")
    @classmethod
    def _are_blocks(cls, written: list[dict[str, str]]) -> list[dict[str, str]]:
        try:
            blocks_of(written)
        except KeyError as error:
            raise ValueError("a block lacks a part") from error
        return written


class CallState(_Strict):
    """Be one call of the step that is under way, with its result once it has one, or the request that it waits for.

    `wire` is the name by which the model knows the tool (None: the same). `shown` and `reason` are what the person sees who
    is asked. `arguments` are as the model wrote them: JSON text that may be broken, an object, or None.
    """

    id: str
    name: str
    wire: str | None = None
    arguments: str | dict[str, Any] | None = None
    cut_off: bool = False
    result: StoredResult | None = None
    approval_id: str | None = None
    shown: str | None = None
    reason: str | None = None


class StoredLimits(_Strict):
    """Be the limits of a run; `ends_at` is in seconds since the epoch."""

    steps: _Count | None = None
    ends_at: _Amount | None = None
    tokens: _Count | None = None
    cost: _Amount | None = None


class RunState(StoredState):
    """Hold everything that a run needs to go on.

    `messages` are the model layer's messages as JSON. `calls` is empty while the model is to be asked, and holds the calls of
    the last answer while their results are not complete. `offered` are the names that the step offered, `additional` those
    among them that the run had brought along. `waiting` is a message of the user that goes behind the results.
    """

    FORMAT: ClassVar[str] = "callgate-run"
    KIND: ClassVar[Literal["agent", "workflow"]] = "agent"

    format: Literal["callgate-run"] = "callgate-run"
    version: Literal[1] = 1
    subject: str
    roles: list[str]
    thread_id: str | None = None
    profile: str | None = None
    model: str | None = None
    instructions: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    only: list[str] | None = None
    narrowed_by: str | None = None
    dry_run: bool = False
    limits: StoredLimits = Field(default_factory=StoredLimits)
    step: _Count = 0
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    calls: list[CallState] = Field(default_factory=list[CallState])
    offered: list[str] = Field(default_factory=list[str])
    additional: list[str] = Field(default_factory=list[str])
    waiting: str | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cost: _Amount | None = 0.0
    error: str | None = None

    @model_validator(mode="after")
    def _names_each_call_once(self) -> "RunState":
        ids = [call.id for call in self.calls]
        if len(set(ids)) != len(ids):
            raise ValueError("two calls of the step have the same id")
        return self
