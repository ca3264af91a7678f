"""The state of a run: what a node sees of it, how a patch changes it, and the record that is stored after each node."""

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from callgate.errors import RunStateError
from callgate.workflow.definition import Workflow

__all__ = ("PatchError", "WorkflowState", "patched", "seen")

_FORMAT: Final = "callgate-workflow"
_VERSION: Final = 1


class PatchError(ValueError):
    """Say why a patch, or the state that a run begins with, does not fit the workflow's state."""


class WorkflowState(BaseModel):
    """Be a run as it is stored: the state after the last node that has finished, and the node that comes next.

    `path` is the way so far, as (round, node) each. `ends_at` is in seconds since the epoch.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["callgate-workflow"] = _FORMAT
    version: Literal[1] = _VERSION
    run_id: str
    workflow: str
    digest: str
    subject: str
    roles: list[str]
    thread_id: str | None = None
    state: dict[str, Any]
    node: str
    round: Annotated[int, Field(ge=1)] = 1
    steps: Annotated[int, Field(ge=0)] = 0
    path: list[tuple[int, str]] = []
    ends_at: float | None = None
    delivered: bool = False
    value: Any = None
    error: str | None = None

    def dump(self) -> str:
        """Write it as JSON text."""
        return self.model_dump_json()

    @classmethod
    def load(cls, text: str) -> "WorkflowState":
        """Read it.

        Raises:
            RunStateError: it is damaged, or a newer release wrote it; nothing is resumed.
        """
        try:
            head = cast("dict[str, object]", json.loads(text))
            version = head.get("version") if isinstance(cast("object", head), dict) else None
        except ValueError as error:
            raise RunStateError("the stored run is damaged: it is no JSON") from error
        if isinstance(version, int) and version > _VERSION:
            raise RunStateError(f"the stored run has version {version}, this release reads {_VERSION}: upgrade callgate")
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            places = ", ".join(".".join(map(str, each["loc"])) or "(all)" for each in error.errors()[:3])
            raise RunStateError(f"the stored run is damaged at {places}") from error


_ADAPTER: Final = TypeAdapter(WorkflowState)


def seen(workflow: Workflow, plain: Mapping[str, Any]) -> Any:
    """Give the state as a node sees it: a value of its type, or a mapping, that belongs to the node alone."""
    if workflow.state is None:
        return MappingProxyType(copy.deepcopy(dict(plain)))
    return workflow.state.validate_json(to_json(plain))


def patched(workflow: Workflow, plain: Mapping[str, Any], patch: object) -> dict[str, Any]:
    """Give the state with a patch, as JSON values.

    Raises:
        PatchError: the patch is no mapping, has a field that the state does not have, or a value that does not fit.
    """
    if patch is None:
        return dict(plain)
    if not isinstance(patch, Mapping):
        raise PatchError(f"a node gives a mapping of fields, or None, not {type(patch).__name__}")
    given = cast("Mapping[str, Any]", patch)
    unknown = [] if workflow.fields is None else sorted(str(name) for name in given if name not in workflow.fields)
    if unknown:
        raise PatchError(f"the state has no field {unknown[0]!r}")
    try:
        together = {**plain, **cast("dict[str, Any]", json.loads(to_json(given)))}
        if workflow.state is None:
            return together
        value = workflow.state.validate_json(to_json(together))
        return cast("dict[str, Any]", workflow.state.dump_python(value, mode="json"))
    except ValidationError as error:
        places = ", ".join(".".join(map(str, each["loc"])) or "(all)" for each in error.errors()[:3])
        raise PatchError(f"the state does not fit its type at {places}") from error
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise PatchError("the state holds what JSON does not") from error
