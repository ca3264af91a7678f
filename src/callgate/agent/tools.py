"""`split_run_tools`: the tools of a stored run, found again by their names. Source: contract row A4."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.registry import ToolRegistry
from callgate.tools.tool import Tool, as_tool

__all__ = ("RunTools", "split_run_tools")


@dataclass(frozen=True, slots=True)
class RunTools:
    """Be the tools of a run: those of the registry, those that the run brings along, and the names that are gone."""

    registered: tuple[Tool[Any, Any], ...]
    additional: tuple[Tool[Any, Any], ...]
    missing: tuple[str, ...]

    @property
    def all(self) -> list[Tool[Any, Any]]:
        """The tools that there are."""
        return [*self.registered, *self.additional]


def split_run_tools(names: Sequence[str], registry: ToolRegistry, additional: Iterable[object] = ()) -> RunTools:
    """Find the tools of some names: in the registry, or among those that are handed in again.

    A name that is in neither is missing: a call of it is answered with a 404, and every other call runs.
    """
    brought = {tool.name: tool for tool in map(as_tool, additional)}
    registered = [tool for tool in map(registry.get, names) if tool is not None]
    known = {tool.name for tool in registered}
    return RunTools(
        tuple(registered),
        tuple(brought[name] for name in names if name in brought and name not in known),
        tuple(name for name in names if name not in known and name not in brought),
    )
