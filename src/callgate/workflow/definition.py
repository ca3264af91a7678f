"""What a workflow is: nodes, the routes between them, and the state that they share. Checked when it is defined. Row W1."""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from callgate.errors import WorkflowDefinitionError
from callgate.tools.annotations import modern_types

__all__ = ("Node", "Route", "Workflow", "define_workflow", "node", "route")

Condition: TypeAlias = Callable[[Any], object]
NodeFunction: TypeAlias = Callable[[Any, Any], Mapping[str, Any] | None | Awaitable[Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Route:
    """Lead to the node `target`, or deliver the state's field `field`, when `when(state)` holds (None: always)."""

    target: str | None = None
    field: str | None = None
    when: Condition | None = None

    def __str__(self) -> str:
        leads = f"to {self.target}" if self.field is None else f"deliver {self.field}"
        return leads if self.when is None else f"{leads} when {getattr(self.when, '__name__', 'a condition')}"


class route:  # noqa: N801 - it reads as a word: route.to(…), route.deliver(…)
    """Make the routes of a node; they are tried in their order, and the first that fits is taken."""

    @staticmethod
    def to(target: str, when: Condition | None = None) -> Route:
        """Go on with a node."""
        return Route(target=target, when=when)

    @staticmethod
    def deliver(field_name: str, when: Condition | None = None) -> Route:
        """End the run, and give a field of the state."""
        return Route(field=field_name, when=when)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Be a step: `run(state, runtime)` gives a patch of the state (a mapping, or None), and `routes` say what comes then.

    `state` is for reading: changing it changes nothing. `starts_round` marks the one node at which the run, and each further
    round of it, begins. `run` may be async or not.
    """

    id: str
    description: str
    run: NodeFunction
    routes: tuple[Route, ...]
    starts_round: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", tuple(self.routes))


def node(
    *,
    routes: Sequence[Route],
    id: str | None = None,  # noqa: A002 - the contract's word
    description: str | None = None,
    starts_round: bool = False,
) -> Callable[[NodeFunction], Node]:
    """Make a node of a function; its name and the first line of its docstring are the node's, unless others are given."""

    def make(function: NodeFunction) -> Node:
        name = getattr(function, "__name__", "node") if id is None else id
        said = (inspect.getdoc(function) or name).partition("\n")[0] if description is None else description
        return Node(id=name, description=said, run=function, routes=tuple(routes), starts_round=starts_round)

    return make


@dataclass(frozen=True, slots=True, eq=False)
class Workflow:
    """Be a workflow that can work. `digest` tells its shape from another one's: nodes, routes, and the state's schema."""

    id: str
    nodes: Mapping[str, Node]
    start: Node
    state: TypeAdapter[Any] | None = field(repr=False)
    fields: frozenset[str] | None = field(repr=False)
    digest: str = field(repr=False)


def define_workflow(id: str, nodes: Sequence[Node], *, state: Any = None) -> Workflow:  # noqa: A002 - the contract's word
    """Define a workflow. `state` is a dataclass, a TypedDict or a pydantic model (None: a mapping of anything that JSON holds).

    Raises:
        WorkflowDefinitionError: it cannot work; the error names the node and the route.
    """
    by_id: dict[str, Node] = {}
    for each in nodes:
        _check_node(id, each)
        if by_id.setdefault(each.id, each) is not each:
            raise WorkflowDefinitionError(id, "another node has the same id", node=each.id)
    starts = [each for each in nodes if each.starts_round]
    if len(starts) != 1:
        found = "none does" if not starts else f"{' and '.join(each.id for each in starts)} do"
        raise WorkflowDefinitionError(id, f"one node has to start the round (starts_round=True), and {found}")
    adapter = _adapter_of(id, state)
    names = None if adapter is None else _fields_of(adapter)
    for each in nodes:
        _check_routes(id, each, by_id, names)
    _check_ways(id, by_id, starts[0])
    return Workflow(id, MappingProxyType(by_id), starts[0], adapter, names, _digest(id, nodes, adapter))


def _adapter_of(workflow: str, state: Any) -> TypeAdapter[Any] | None:
    if state is None:
        return None
    try:
        return TypeAdapter(modern_types(state))
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise WorkflowDefinitionError(workflow, f"its state cannot be written as JSON: {type(error).__name__}") from error


def _fields_of(adapter: TypeAdapter[Any]) -> frozenset[str]:
    schema = adapter.json_schema(mode="serialization")
    target = schema.get("$ref", "").rpartition("/")[2]
    described = schema["$defs"][target] if target else schema
    return frozenset(described.get("properties", {}))


def _check_node(workflow: str, each: object) -> None:
    if not isinstance(each, Node):
        raise WorkflowDefinitionError(workflow, f"a node is Node(…) or a function with @node(…), not {type(each).__name__}")
    if not isinstance(cast("object", each.id), str) or not each.id:
        raise WorkflowDefinitionError(workflow, f"a node's id must be a text that is not empty, not {each.id!r}")
    for place, one in enumerate(cast("tuple[object, ...]", each.routes), 1):
        if not isinstance(one, Route):
            raise WorkflowDefinitionError(workflow, "use route.to(…) or route.deliver(…)", node=each.id, route=place)
        if one.when is None:
            continue
        if not callable(one.when):
            raise WorkflowDefinitionError(workflow, "its condition must be a function of the state", node=each.id, route=place)
        if inspect.iscoroutinefunction(one.when):
            wrong = "its condition would have to be awaited: a node finds out, and the condition looks at the state"
            raise WorkflowDefinitionError(workflow, wrong, node=each.id, route=place)


def _check_routes(workflow: str, each: Node, nodes: Mapping[str, Node], names: frozenset[str] | None) -> None:
    if not callable(each.run):
        raise WorkflowDefinitionError(workflow, "run must be a function of state and runtime", node=each.id)
    if not each.routes:
        raise WorkflowDefinitionError(workflow, "it has no routes: say where it leads, or what it delivers", node=each.id)
    for place, one in enumerate(each.routes, 1):
        if (one.target is None) == (one.field is None):
            raise WorkflowDefinitionError(workflow, "use route.to(…) or route.deliver(…)", node=each.id, route=place)
        if one.target is not None and one.target not in nodes:
            raise WorkflowDefinitionError(workflow, f"there is no node {one.target!r}", node=each.id, route=place)
        if one.field is not None and names is not None and one.field not in names:
            raise WorkflowDefinitionError(workflow, f"the state has no field {one.field!r}", node=each.id, route=place)
        if one.when is None and place < len(each.routes):
            raise WorkflowDefinitionError(workflow, "it has no condition, and hides those behind it", node=each.id, route=place)


def _check_ways(workflow: str, nodes: Mapping[str, Node], start: Node) -> None:
    reached, waiting = {start.id}, [start]
    while waiting:
        for one in waiting.pop().routes:
            if one.target is not None and one.target not in reached:
                reached.add(one.target)
                waiting.append(nodes[one.target])
    for name in nodes:
        if name not in reached:
            raise WorkflowDefinitionError(workflow, "no way leads to it from the start", node=name)
    delivers = {name for name, each in nodes.items() if any(one.field is not None for one in each.routes)}
    grown = True
    while grown:
        more = {name for name, each in nodes.items() if any(one.target in delivers for one in each.routes)} - delivers
        delivers |= more
        grown = bool(more)
    for name in nodes:
        if name not in delivers:
            raise WorkflowDefinitionError(workflow, "no way leads from it to a delivery", node=name)


_NO_STATE: Final = "any"


def _digest(workflow: str, nodes: Sequence[Node], adapter: TypeAdapter[Any] | None) -> str:
    shape = {
        "id": workflow,
        "nodes": [
            [each.id, each.description, each.starts_round, [[one.target, one.field, one.when is not None] for one in each.routes]]
            for each in nodes
        ],
        "state": _NO_STATE if adapter is None else adapter.json_schema(mode="serialization"),
    }
    return sha256(json.dumps(shape, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()
