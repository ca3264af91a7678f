"""An agent in the terminal: what happens is shown, and whoever sits there is asked for approvals."""

import asyncio
import importlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, TypedDict

import typer
from rich.console import Console
from rich.text import Text

from callgate.agent import (
    AgentEvent,
    CallFinished,
    CallProgress,
    CallStarted,
    LLMClient,
    PendingCall,
    Run,
    RunEnded,
    RunPaused,
    TextDelta,
    create_run_hooks,
    prepare_call,
)
from callgate.approvals import Approve, Decided, Deny, Edit
from callgate.cli.shared import refuse
from callgate.cli.stored import edited_in_editor, who
from callgate.cli.tables import receipt_line
from callgate.errors import CallgateError
from callgate.gate import Gate
from callgate.values import Caller

__all__ = ("Beginning", "begin", "go_on")

FAILED: Final = 4
PAUSED: Final = 5
INTERRUPTED: Final = 130


class Beginning(TypedDict):
    """Say what a run begins with."""

    prompt: str
    caller: str
    profile: str | None
    thread_id: str | None


def begin(gate: Gate, model: str, beginning: Beginning, *, ask: bool) -> None:
    """Run an agent until it is over, or paused and nobody here decides."""
    client = LLMClient(_model(model))
    caller = Caller(beginning["caller"])
    thread_id, profile = beginning["thread_id"], beginning["profile"]
    prepared = prepare_call(gate, prompt=beginning["prompt"], caller=caller, profile=profile, thread_id=thread_id)
    _go(gate, client, client.stream(prepared, create_run_hooks(gate)), ask=ask)


def go_on(gate: Gate, model: str, run_id: str, message: str | None, *, ask: bool) -> None:
    """Go on with a run."""
    client = LLMClient(_model(model))
    _go(gate, client, client.resume_stream(run_id, create_run_hooks(gate), message=message), ask=ask)


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


def _go(gate: Gate, client: LLMClient, stream: AsyncGenerator[AgentEvent, None], *, ask: bool) -> None:
    console = Console(stderr=True, soft_wrap=True)

    async def go() -> Run:
        try:
            ended = await _follow(stream, console)
            while ended.status == "paused" and ask:
                decisions = _ask_all(ended.pending, console)
                if decisions is None:
                    break
                going = client.resume_stream(ended.run_id, create_run_hooks(gate), decisions=decisions)
                ended = await _follow(going, console)
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


async def _follow(stream: AsyncGenerator[AgentEvent, None], console: Console) -> Run:
    """Show what happens, the model's text on stdout and the rest beside it; give the run as it is at the end."""
    ended: Run | None = None
    async for event in stream:
        match event:
            case TextDelta(text=text):
                sys.stdout.write(text)
                sys.stdout.flush()
            case CallStarted(call=call):
                console.print(Text(f"→ {call.name} {call.arguments if call.arguments is not None else ''}", style="cyan"))
            case CallProgress(item=item):
                console.print(Text(f"  {item}", style="dim"))
            case CallFinished(outcome=outcome):
                style = "red" if outcome.is_error else "green"
                console.print(Text(f"← {outcome.text[:500]}", style=style))
                if outcome.receipt is not None:
                    console.print(receipt_line(outcome.receipt))
            case RunPaused(run=run) | RunEnded(run=run):
                ended = run
            case _:
                continue
    sys.stdout.write("\n")
    assert ended is not None  # a stream ends with the run
    return ended


def _ask_all(pending: tuple[PendingCall, ...], console: Console) -> dict[str, Decided] | None:
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


def _ask_one(pending: PendingCall) -> Decided | None:
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


def _report(ended: Run, console: Console) -> None:
    if ended.status == "completed":
        return
    if ended.status == "paused":
        for each in ended.pending:
            console.print(Text(f"waits: {each.approval_id} {each.tool} {each.arguments}", style="yellow"))
        console.print(Text(f"paused; decide with callgate approvals, and go on with: callgate resume {ended.run_id} TARGET"))
        raise typer.Exit(PAUSED)
    console.print(Text(f"{ended.status}: {ended.error}", style="red"))
    raise typer.Exit(FAILED)
