"""What several commands share: the options, the store and the gate that they work with, and how they end."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console, RenderableType

from callgate.cli.targets import TargetError, load_registry
from callgate.errors import CallgateError, ToolDefinitionError
from callgate.gate import Gate
from callgate.policy import Rule, RulePolicy, ToolPolicy, Verdict
from callgate.registry import ToolRegistry
from callgate.store import Store, open_store

__all__ = (
    "AsJson",
    "Place",
    "PolicyFile",
    "Target",
    "careful_policy",
    "emit",
    "gate_of",
    "refuse",
    "registry_of",
    "run_with",
    "store_of",
)

T = TypeVar("T")
WRONG_USE: Final = 2

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="file.py, file.py:attribute, module or module:attribute.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Place = Annotated[str, typer.Option("--store", help="A SQLite file, or postgresql://user@host/name.")]
PolicyFile = Annotated[
    str | None, typer.Option("--policy", help="A TOML file of rules; without it reads are allowed and everything else asks.")
]


def refuse(reason: str) -> NoReturn:
    """End the command as wrongly used."""
    sys.stderr.write(f"callgate: {reason}\n")
    raise typer.Exit(WRONG_USE)


def emit(content: RenderableType | list[Any] | dict[str, Any]) -> None:
    """Print a table for people, or JSON for programs."""
    if isinstance(content, list | dict):
        sys.stdout.write(json.dumps(content, ensure_ascii=False) + "\n")
    else:
        Console().print(content)


def registry_of(target: str) -> ToolRegistry:
    """Load the tools of a target, or end the command."""
    try:
        return load_registry(target)
    except (TargetError, ToolDefinitionError) as error:
        refuse(error.user_message)


def store_of(place: str) -> Store:
    """Open a store, or end the command."""
    try:
        return open_store(place)
    except CallgateError as error:
        refuse(error.user_message)


def careful_policy() -> ToolPolicy:
    """Give the policy of who brings none: reads are allowed, everything else asks."""
    reads = Rule(id="reads", decision=Verdict.ALLOW, kinds=("read",))
    return _Unbound([reads], default="ask")


class _Unbound(RulePolicy):
    """Be rules that hold for any tools: that there are no reads among them is no mistake."""

    def bind(self, _catalog: object, /) -> None:
        """Check nothing."""


def gate_of(target: str | None, place: str, policy: str | None) -> Gate:
    """Make a gate of what the command line names, or end the command."""
    registry = ToolRegistry([]) if target is None else registry_of(target)
    try:
        rules = careful_policy() if policy is None else RulePolicy.load(policy)
        return Gate(registry, policy=rules, store=store_of(place))
    except CallgateError as error:
        refuse(error.user_message)


def run_with(gate: Gate, work: Coroutine[Any, Any, T]) -> T:
    """Do a command's work, close the gate, and end the command with the text of an error that a user can have caused."""

    async def go() -> T:
        try:
            return await work
        finally:
            await gate.aclose()

    try:
        return asyncio.run(go())
    except CallgateError as error:
        refuse(error.user_message)
