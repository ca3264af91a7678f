"""`callgate workflow`: check a definition, show it, run it."""

import asyncio
import json
from typing import Annotated, Any, cast

import typer

from callgate.cli.interrupts import run_closing
from callgate.cli.shared import AsJson, Log, Place, PolicyFile, emit, gate_of, refuse, store_of, there
from callgate.cli.targets import TargetError, load_attribute
from callgate.cli.writing import for_programs, for_stdout, line, lines
from callgate.errors import CallgateError, RunPausedError, WorkflowError
from callgate.gate import Gate
from callgate.workflow import Engine, Workflow, mermaid, tree
from callgate.workflow.states import WorkflowState

__all__ = ("workflow_app",)

workflow_app = typer.Typer(help="Check, show and run a workflow.", no_args_is_help=True)

WorkflowTarget = Annotated[
    str, typer.Argument(metavar="TARGET", help="file.py:attribute or module:attribute of a Workflow.", show_default=False)
]
FAILED = 4
PAUSED = 5
INTERRUPTED = 130


def _load(target: str) -> Workflow:
    try:
        found = load_attribute(target)
    except TargetError as error:
        refuse(error.user_message)
    if not issubclass(type(found), Workflow):  # not `isinstance`, which asks the value for its `__class__`
        refuse(f"{target!r} holds a {type(found).__name__}; expected a Workflow")
    return cast("Workflow", found)


@workflow_app.command()
def check(target: WorkflowTarget, as_json: AsJson = False) -> None:
    """Load a workflow, which checks it; exit with 2 when it cannot work, naming node and route."""
    found = _load(target)
    facts: dict[str, Any] = {"id": found.id, "nodes": list(found.nodes), "start": found.start.id, "digest": found.digest}
    emit(facts if as_json else f"{found.id}: {len(found.nodes)} nodes from {found.start.id!r}, nothing found")


@workflow_app.command()
def show(
    target: WorkflowTarget,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    run: Annotated[str | None, typer.Option(help="Mark the way of this run.")] = None,
    store: Place = "callgate.db",
) -> None:
    """Draw a workflow as a tree, or as Mermaid text."""
    found = _load(target)
    path = [] if run is None else _path_of(run, store)
    typer.echo(for_stdout((mermaid if as_mermaid else tree)(found, path)))


def _path_of(run_id: str, place: str) -> list[str]:
    store = store_of(there(place))

    async def read() -> list[str]:
        stored = await store.run(run_id)
        await store.aclose()
        if stored is None or stored.kind != "workflow":
            refuse(f"there is no run {run_id!r} of a workflow")
        return [name for _, name in WorkflowState.load(stored.state).path]

    try:
        return asyncio.run(read())
    except CallgateError as error:
        refuse(error.user_message)


@workflow_app.command()
def run(
    target: WorkflowTarget,
    tools: Annotated[str, typer.Argument(metavar="TOOLS", help="The tools: a target as for list.", show_default=False)],
    state: Annotated[str, typer.Argument(metavar="[JSON]", help="The state that the run begins with.")] = "{}",
    resume: Annotated[str | None, typer.Option(help="Go on with this run instead.")] = None,
    store: Place = "callgate.db",
    policy: PolicyFile = None,
    _log: Log = False,
) -> None:
    """Run a workflow, and print what it delivers as JSON; exit with 5 when it waits for people, with 4 when it failed.

    Ctrl-C stops it, and exits with 130.
    """
    found = _load(target)
    try:
        begins: object = json.loads(state)
    except (ValueError, RecursionError) as error:
        refuse(f"the state is no JSON: {error}")
    typer.echo(for_programs(_delivered(gate_of(tools, store if resume is None else there(store), policy), found, begins, resume)))


def _delivered(gate: Gate, workflow: Workflow, begins: object, run_id: str | None) -> Any:
    engine = Engine(workflow).bind_tool_runtime(gate)

    try:
        return run_closing(gate, engine.run(begins) if run_id is None else engine.resume(run_id))
    except RunPausedError as paused:
        typer.echo(line(f"run {paused.run_id} waits for {', '.join(paused.pending)}"), err=True)
        raise typer.Exit(PAUSED) from None
    except WorkflowError as error:
        typer.echo(lines(error.user_message), err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what was stored can be seen with: callgate runs", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except CallgateError as error:
        refuse(error.user_message)
