"""An agent in the terminal: what happens is shown, and whoever sits there is asked for approvals."""

import asyncio
import sys
from collections.abc import AsyncGenerator
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
from callgate.cli.interrupts import closed, run_stoppable
from callgate.cli.shared import refuse
from callgate.cli.stored import edited_in_editor, who
from callgate.cli.tables import receipt_line
from callgate.cli.targets import TargetError, load_attribute
from callgate.cli.writing import for_stdout, line, said
from callgate.errors import CallgateError, ConflictError, InvalidInputError, ToolDeniedError, UsageError
from callgate.gate import Gate
from callgate.tools.secrecy import takes_secrets
from callgate.values import Caller, ToolCall

__all__ = ("Beginning", "begin", "go_on")

FAILED: Final = 4
PAUSED: Final = 5
INTERRUPTED: Final = 130
_LONGEST: Final = 500


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
    place, colon, _ = name.rpartition(":")
    if not (colon and place.endswith(".py")):
        return name
    try:
        return load_attribute(name)
    except TargetError as error:
        refuse(f"the model cannot be loaded: {error.user_message}")


def _somebody_is_there() -> bool:
    """Tell whether a person can see a question and answer it: what a pipe holds is no answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _go(gate: Gate, client: LLMClient, stream: AsyncGenerator[AgentEvent, None], *, ask: bool) -> None:
    console = Console(stderr=True, soft_wrap=True)
    asks = ask and _somebody_is_there()
    with asyncio.Runner() as runner:  # a loop that stands still while a person thinks: Ctrl-C is theirs then
        try:
            ended = run_stoppable(runner, _follow(gate, stream, console))
            while ended.status == "paused" and asks:
                decisions = _ask_all(ended.pending, console)
                if not decisions:
                    break
                ended = run_stoppable(runner, _decided(gate, client, ended.run_id, decisions, console))
        except KeyboardInterrupt:
            console.print(Text("stopped; what was stored can be seen with: callgate runs", style="yellow"))
            raise typer.Exit(INTERRUPTED) from None
        except CallgateError as error:
            refuse(error.user_message)
        finally:
            runner.run(closed(gate))
    _report(ended, console)


async def _decided(gate: Gate, client: LLMClient, run_id: str, decisions: dict[str, Decided], console: Console) -> Run:
    """Go on with decisions. One that is refused is told, and what it was about can be decided again."""
    hooks = create_run_hooks(gate)
    try:
        return await _follow(gate, client.resume_stream(run_id, hooks, decisions=decisions), console)
    except (InvalidInputError, ToolDeniedError) as error:
        console.print(said(error.user_message, "red"))
        return await client.report(run_id, hooks)
    except ConflictError as error:  # decided elsewhere, or too late: the run goes on with what was decided
        console.print(said(error.user_message, "red"))
        return await _follow(gate, client.resume_stream(run_id, hooks), console)


async def _follow(gate: Gate, stream: AsyncGenerator[AgentEvent, None], console: Console) -> Run:
    """Show what happens, the model's text on stdout and the rest beside it; give the run as it is at the end."""
    ended: Run | None = None
    async for event in stream:
        match event:
            case TextDelta(text=text):
                sys.stdout.write(for_stdout(text))
                sys.stdout.flush()
            case CallStarted(call=call):
                console.print(said(f"→ {call.name} {_written(gate, call)}", "cyan"))
            case CallProgress(item=item):
                console.print(said(f"  {_short(item)}", "dim"))
            case CallFinished(outcome=outcome):
                console.print(said(f"← {_short(outcome.text)}", "red" if outcome.is_error else "green"))
                if outcome.receipt is not None:
                    console.print(receipt_line(outcome.receipt))
            case RunPaused(run=run) | RunEnded(run=run):
                ended = run
            case _:
                continue
    sys.stdout.write("\n")
    assert ended is not None  # a stream ends with the run
    return ended


def _written(gate: Gate, call: ToolCall) -> str:
    """Write the arguments as the model wrote them, where no secret can stand in them."""
    tool = gate.registry.find(call.name)
    return "(it takes secrets)" if tool is not None and takes_secrets(tool.input_schema) else _short(call.arguments)


def _short(value: object) -> str:
    """Write what a tool or a model gave, the beginning of it when it is long; nothing when it cannot be written."""
    try:
        text = "" if value is None else str(value)
    except Exception:  # noqa: BLE001 - the tool's own `__str__`
        text = f"({type(value).__name__})"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _ask_all(pending: tuple[PendingCall, ...], console: Console) -> dict[str, Decided]:
    """Ask about every call that waits. Ctrl-C and the end of the input decide nothing; at "pause" those before are decided."""
    decisions: dict[str, Decided] = {}
    for each in pending:
        console.print(Text(f"? {line(each.tool)} {line(each.arguments)}", style="bold yellow"))
        if each.reason:
            console.print(said(f"  {each.reason}", "yellow"))
        try:
            decision = _ask_until_answered(each, console)
        except (typer.Abort, EOFError, KeyboardInterrupt):
            console.print()
            return {}
        if decision is None:
            return decisions
        decisions[each.approval_id] = decision
    return decisions


def _ask_until_answered(pending: PendingCall, console: Console) -> Decided | None:
    while True:
        try:
            return _ask_one(pending)
        except UsageError as error:
            console.print(said(error.user_message, "red"))


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
            console.print(Text(line(f"waits: {each.approval_id} {each.tool} {each.arguments}"), style="yellow"))
        console.print(
            Text("paused; decide with callgate approvals, and go on with: " + line(f"callgate resume {ended.run_id} TARGET"))
        )
        raise typer.Exit(PAUSED)
    console.print(said(f"{ended.status}: {ended.error}", "red"))
    raise typer.Exit(FAILED)
