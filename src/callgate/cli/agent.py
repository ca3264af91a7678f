"""`callgate run` and `callgate resume`: an agent in the terminal, which asks the person before it for approvals."""

import asyncio
import importlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from callgate.approvals import Approve, Decided, Deny, Edit
from callgate.cli.shared import Place, PolicyFile, Target, gate_of, refuse
from callgate.cli.stored import DEFAULT_PLACE, edited_in_editor, who
from callgate.cli.tables import receipt_line
from callgate.errors import CallgateError
from callgate.gate import Gate
from callgate.values import Caller

__all__ = ("resume", "run")

FAILED = 4
PAUSED = 5
INTERRUPTED = 130

Model = Annotated[
    str, typer.Option("--model", help="Such as openai:gpt-5, or file.py:attribute for a model object.", show_default=False)
]
No = Annotated[bool, typer.Option("--no-ask", help="Ask nobody here: the run is paused, to be decided elsewhere.")]


def run(
    target: Target,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the user says.", show_default=False)],
    model: Model,
    profile: Annotated[str | None, typer.Option(help="A profile of the store.")] = None,
    store: Place = DEFAULT_PLACE,
    policy: PolicyFile = None,
    caller: Annotated[str | None, typer.Option(help="On whose behalf; without it, the name of the user.")] = None,
    thread: Annotated[str | None, typer.Option(help="The conversation that the run belongs to.")] = None,
    no_ask: No = False,
) -> None:
    """Run an agent with the tools of TARGET, and ask here for what has to be approved.

    Exits with 0 when the run is completed, 4 when it failed or was stopped, 5 when it is paused. Ctrl-C stops it, and at a
    question leaves it paused.
    """
    agent = _agent()
    gate = gate_of(target, store, policy)
    client = agent.LLMClient(_model(model))
    try:
        prepared = agent.prepare_call(gate, prompt=prompt, caller=Caller(who(caller)), profile=profile, thread_id=thread)
    except CallgateError as error:
        refuse(error.user_message)
    _go(gate, agent, client, client.stream(prepared, agent.create_run_hooks(gate)), ask=not no_ask)


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.", show_default=False)],
    target: Target,
    model: Model,
    store: Place = DEFAULT_PLACE,
    policy: PolicyFile = None,
    message: Annotated[str | None, typer.Option(help="What the user says meanwhile.")] = None,
    no_ask: No = False,
) -> None:
    """Go on with a run that is paused, has failed for its provider, or whose process is gone."""
    agent = _agent()
    gate = gate_of(target, store, policy)
    client = agent.LLMClient(_model(model))
    stream = client.resume_stream(run_id, agent.create_run_hooks(gate), message=message)
    _go(gate, agent, client, stream, ask=not no_ask)


def _agent() -> Any:
    try:
        return importlib.import_module("callgate.agent")
    except CallgateError as error:
        refuse(error.user_message)


def _model(name: str) -> object:
    """Give a model by its name, or the object that a Python file has under it."""
    place, colon, attribute = name.rpartition(":")
    if not (colon and place.endswith(".py")):
        return name
    file = Path(place)
    if not file.is_file():
        refuse(f"there is no file {place!r} for the model")
    sys.path.insert(0, str(file.resolve().parent))
    try:
        return getattr(importlib.import_module(file.stem), attribute)
    except AttributeError:
        refuse(f"{place!r} has no attribute {attribute!r} for the model")


def _go(gate: Gate, agent: Any, client: Any, stream: AsyncGenerator[Any, None], *, ask: bool) -> None:
    console = Console(stderr=True, soft_wrap=True)

    async def go() -> Any:
        try:
            ended = await _follow(stream, agent, console)
            while ended.status == "paused" and ask:
                decisions = _ask_all(ended.pending, console)
                if decisions is None:
                    break
                hooks = agent.create_run_hooks(gate)
                ended = await _follow(client.resume_stream(ended.run_id, hooks, decisions=decisions), agent, console)
            return ended
        finally:
            await gate.aclose()

    try:
        ended = asyncio.run(go())
    except KeyboardInterrupt:
        console.print(Text("stopped; what was stored can be seen with: callgate runs", style="yellow"))
        raise typer.Exit(INTERRUPTED) from None
    except CallgateError as error:
        refuse(error.user_message)
    _report(ended, console)


async def _follow(stream: AsyncGenerator[Any, None], agent: Any, console: Console) -> Any:
    """Show what happens, the model's text on stdout and the rest beside it; give the run as it is at the end."""
    ended = None
    async for event in stream:
        match event:
            case agent.TextDelta(text=text):
                sys.stdout.write(text)
                sys.stdout.flush()
            case agent.CallStarted(call=call):
                console.print(Text(f"→ {call.name} {call.arguments if call.arguments is not None else ''}", style="cyan"))
            case agent.CallProgress(item=item):
                console.print(Text(f"  {item}", style="dim"))
            case agent.CallFinished(outcome=outcome):
                style = "red" if outcome.is_error else "green"
                console.print(Text(f"← {outcome.text[:500]}", style=style))
                if outcome.receipt is not None:
                    console.print(receipt_line(outcome.receipt))
            case agent.RunPaused(run=run) | agent.RunEnded(run=run):
                ended = run
            case _:
                continue
    sys.stdout.write("\n")
    return ended


def _ask_all(pending: tuple[Any, ...], console: Console) -> dict[str, Decided] | None:
    """Ask about every call that waits; None when the person leaves the run as it is."""
    decisions: dict[str, Decided] = {}
    for each in pending:
        console.print(Text(f"? {each.tool} {each.arguments}", style="bold yellow"))
        if each.reason:
            console.print(Text(f"  {each.reason}", style="yellow"))
        try:
            decision = _ask_one(each)
        except (typer.Abort, EOFError, KeyboardInterrupt):
            return decisions or None
        if decision is None:
            return decisions or None
        decisions[each.approval_id] = decision
    return decisions


def _ask_one(pending: Any) -> Decided | None:
    by = who(None)
    answer = typer.prompt("  [a]pprove, approve for the rest of the [r]un, [d]eny, [e]dit, [p]ause", default="p", err=True)
    match answer.strip().lower()[:1]:
        case "a":
            return Approve(by=by)
        case "r":
            return Approve(by=by, remember="run")
        case "d":
            return Deny(by=by, reason=typer.prompt("  why", default="", show_default=False, err=True))
        case "e":
            return Edit(by=by, arguments=edited_in_editor(pending.arguments))
        case _:
            return None


def _report(ended: Any, console: Console) -> None:
    if ended.status == "completed":
        return
    if ended.status == "paused":
        for each in ended.pending:
            console.print(Text(f"waits: {each.approval_id} {each.tool} {each.arguments}", style="yellow"))
        console.print(Text(f"paused; decide with callgate approvals, and go on with: callgate resume {ended.run_id} TARGET"))
        raise typer.Exit(PAUSED)
    console.print(Text(f"{ended.status}: {ended.error}", style="red"))
    raise typer.Exit(FAILED)
