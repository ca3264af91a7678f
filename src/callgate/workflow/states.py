"""The state of a run: what a node sees of it, how a patch changes it, and the record that is stored after each node."""

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from callgate.gate.stored_runs import StoredState
from callgate.workflow.definition import Workflow

__all__ = ("PatchError", "WorkflowState", "check_fits", "patched", "seen")


class PatchError(ValueError):
    """Say why a patch, or the state that a run begins with, does not fit the workflow's state."""


class WorkflowState(StoredState):
    """Be a run as it is stored: the state after the last node that has finished, and the node that comes next.

    `path` is the way so far, as (round, node) each. `ends_at` is in seconds since the epoch.
    """

    FORMAT: ClassVar[str] = "callgate-workflow"
    KIND: ClassVar[Literal["agent", "workflow"]] = "workflow"

    format: Literal["callgate-workflow"] = "callgate-workflow"
    version: Literal[1] = 1
    workflow: str
    digest: str
    subject: str
    roles: list[str]
    thread_id: str | None = None
    state: dict[str, Any]
    node: str
    round: Annotated[int, Field(ge=1)] = 1
    steps: Annotated[int, Field(ge=0)] = 0
    path: list[tuple[int, str]] = Field(default_factory=list[tuple[int, str]])
    ends_at: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    delivered: bool = False
    value: Any = None
    error: str | None = None


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
        if workflow.state is not None:
            value = workflow.state.validate_json(to_json(together))
            together = cast("dict[str, Any]", workflow.state.dump_python(value, mode="json"))
        json.dumps(together, allow_nan=False, ensure_ascii=False).encode()
        to_json([together])
    except ValidationError as error:
        places = ", ".join(".".join(map(str, each["loc"])) or "(all)" for each in error.errors()[:3])
        raise PatchError(f"the state does not fit its type at {places}") from error
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise PatchError("the state holds what JSON does not") from error
    return together


def check_fits(workflow: Workflow, plain: Mapping[str, Any]) -> None:
    """See to it that a stored state is one of the workflow's.

    Raises:
        PatchError: it does not fit its type.
    """
    try:
        seen(workflow, plain)
    except ValidationError as error:
        places = ", ".join(".".join(map(str, each["loc"])) or "(all)" for each in error.errors()[:3])
        raise PatchError(f"the state does not fit its type at {places}") from error
