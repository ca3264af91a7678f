"""`RunState`: a run as one versioned JSON value, from which any process can go on. Source: contract rows A3, A4; case f4."""

import json
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from callgate.errors import RunStateError

__all__ = ("CallState", "RunState", "StoredLimits", "StoredResult")

_FORMAT: Final = "callgate-run"
_VERSION: Final = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StoredResult(_Strict):
    """Be what the model reads of a call: its text, whether it failed, and content blocks as they are stored."""

    text: str
    outcome: Literal["success", "failed", "denied", "interrupted"]
    blocks: list[dict[str, str]] = []


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

    steps: int | None = None
    ends_at: float | None = None
    tokens: int | None = None
    cost: float | None = None


class RunState(_Strict):
    """Hold everything that a run needs to go on.

    `messages` are the model layer's messages as JSON. `calls` is empty while the model is to be asked, and holds the calls of
    the last answer while their results are not complete. `offered` are the names that the step offered, `additional` those
    among them that the run had brought along. `waiting` is a message of the user that goes behind the results.
    """

    format: Literal["callgate-run"] = _FORMAT
    version: Literal[1] = _VERSION
    run_id: str
    subject: str
    roles: list[str]
    thread_id: str | None = None
    profile: str | None = None
    model: str | None = None
    instructions: str | None = None
    settings: dict[str, Any] = {}
    only: list[str] | None = None
    narrowed_by: str | None = None
    dry_run: bool = False
    limits: StoredLimits = Field(default_factory=StoredLimits)
    step: Annotated[int, Field(ge=0)] = 0
    messages: list[dict[str, Any]]
    calls: list[CallState] = []
    offered: list[str] = []
    additional: list[str] = []
    waiting: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    error: str | None = None

    def dump(self) -> str:
        """Write the state as JSON text."""
        return self.model_dump_json()

    @classmethod
    def load(cls, text: str) -> "RunState":
        """Read a state.

        Raises:
            RunStateError: it is damaged, or a newer release wrote it; nothing is resumed.
        """
        try:
            facts = cast("object", json.loads(text))
        except ValueError as error:
            raise RunStateError("the stored run is damaged: it is no JSON") from error
        head = cast("dict[str, object]", facts) if isinstance(facts, dict) else {}
        if head.get("format") != _FORMAT:
            raise RunStateError("the stored run is damaged: it is no run of callgate")
        version = head.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise RunStateError(f"the stored run has version {version}, this release reads {_VERSION}: upgrade callgate")
        try:
            state = _ADAPTER.validate_json(text)
        except ValidationError as error:
            places = ", ".join(".".join(map(str, each["loc"])) or "(all)" for each in error.errors()[:3])
            raise RunStateError(f"the stored run is damaged at {places}") from error
        _check_calls(state)
        return state


_ADAPTER: Final = TypeAdapter(RunState)


def _check_calls(state: RunState) -> None:
    ids = [call.id for call in state.calls]
    if len(set(ids)) != len(ids):
        raise RunStateError("the stored run is damaged: two calls of its step have the same id")
