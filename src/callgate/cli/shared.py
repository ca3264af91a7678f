"""What several commands share: the options, the store and the gate that they work with, and how they end."""

import logging
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console, RenderableType

from callgate.cli.interrupts import run_closing
from callgate.cli.targets import TargetError, load_registry
from callgate.cli.writing import for_programs, lines, said
from callgate.errors import CallgateError, ToolDefinitionError
from callgate.gate import Gate
from callgate.policy import Rule, RulePolicy, ToolPolicy, Verdict
from callgate.profiles import load_policy
from callgate.registry import ToolRegistry
from callgate.store import Store, open_store

__all__ = (
    "AsJson",
    "Log",
    "Place",
    "PolicyFile",
    "Target",
    "add_log_handler",
    "emit",
    "gate_of",
    "gate_with",
    "refuse",
    "registry_of",
    "run_with",
    "store_of",
    "there",
)

T = TypeVar("T")
WRONG_USE: Final = 2

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="file.py, file.py:attribute, module or module:attribute.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Place = Annotated[str, typer.Option("--store", help="A SQLite file, or postgresql://user@host/name.")]
PolicyFile = Annotated[
    str | None,
    typer.Option("--policy", help="TOML rules, or a .cedar file; without it reads are allowed and everything else asks."),
]


def add_log_handler(handler: logging.Handler) -> None:
    """Let the library's log go somewhere."""
    logging.getLogger("callgate").addHandler(handler)


def _show_log(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.find_root().params["log"]:
        add_log_handler(logging.StreamHandler())


Log = Annotated[bool, typer.Option("--log", help="Show the log, as before the command.", callback=_show_log)]


def refuse(reason: str) -> NoReturn:
    """End the command as wrongly used."""
    sys.stderr.write(f"callgate: {lines(reason)}\n")
    raise typer.Exit(WRONG_USE)


def emit(content: RenderableType | list[Any] | dict[str, Any]) -> None:
    """Print a table or a text for people, or JSON for programs."""
    if isinstance(content, list | dict):
        sys.stdout.write(for_programs(content) + "\n")
    else:
        Console().print(said(content) if isinstance(content, str) else content)


def registry_of(target: str) -> ToolRegistry:
    """Load the tools of a target, or end the command."""
    try:
        return load_registry(target)
    except (TargetError, ToolDefinitionError) as error:
        refuse(error.user_message)


def there(place: str) -> str:
    """Give back the place of a store, or end the command when its file is not there: only what begins a run makes one."""
    file = place.removeprefix("sqlite:///").partition("?")[0]
    if "://" not in file and place != "memory:" and not Path(file).exists():
        refuse(f"there is no store {file!r}; --store takes a SQLite file, or postgresql://user@host/name")
    return place


def store_of(place: str) -> Store:
    """Open a store, or end the command."""
    try:
        return open_store(place)
    except CallgateError as error:
        refuse(error.user_message)


def _careful_policy() -> ToolPolicy:
    """Give the policy of who brings none: reads are allowed, everything else asks."""
    reads = Rule(id="reads", decision=Verdict.ALLOW, kinds=("read",))
    return _Unbound([reads], default="ask")


class _Unbound(RulePolicy):
    """Be rules that hold for any tools: that there are no reads among them is no mistake."""

    def bind(self, _catalog: object, /) -> None:
        """Check nothing."""


def gate_of(target: str | None, place: str, policy: str | None) -> Gate:
    """Make a gate of what the command line names, or end the command. Without tools it is for what is stored already."""
    if target is None:
        return gate_with(ToolRegistry([]), there(place), policy)
    return gate_with(registry_of(target), place, policy)


def gate_with(registry: ToolRegistry, place: str, policy: str | None) -> Gate:
    """Make a gate around tools, or end the command."""
    try:
        rules = _careful_policy() if policy is None else load_policy(policy)
        return Gate(registry, policy=rules, store=store_of(place))
    except CallgateError as error:
        refuse(error.user_message)


def run_with(gate: Gate, work: Coroutine[Any, Any, T]) -> T:
    """Do a command's work, close the gate, and end the command with the text of an error that a user can have caused."""
    try:
        return run_closing(gate, work)
    except CallgateError as error:
        refuse(error.user_message)
