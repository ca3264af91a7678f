"""What is stored, seen and decided from the command line: `approvals`, `runs` and `log`."""

import asyncio
import getpass
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.table import Table

from callgate.approvals import Approve, Decided, Deny, Edit
from callgate.cli.shared import AsJson, Place, PolicyFile, emit, gate_of, refuse, run_with, there
from callgate.cli.writing import for_programs, line, said
from callgate.errors import UsageError
from callgate.gate import Gate
from callgate.store import JournalFilter, JournalRecord
from callgate.store.records import ApprovalRecord, RunStatus

__all__ = ("approvals_app", "edited_in_editor", "log_app", "runs", "who")

approvals_app = typer.Typer(help="See and decide what waits for a person.", no_args_is_help=True)
log_app = typer.Typer(help="Read the journal, and check that nothing in it was changed.", no_args_is_help=False)

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the request.", show_default=False)]
By = Annotated[str | None, typer.Option("--by", help="Who decides; without it, the name of the user.")]
DEFAULT_PLACE = "callgate.db"
BROKEN = 1
MASK = "**********"
STATUSES: tuple[str, ...] = get_args(RunStatus)


def who(by: str | None) -> str:
    """Name who decides: the user of this process, by number where the system has no name for them."""
    try:
        return by or getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "user"


def _moment(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in {"id", "run"})  # to be copied whole
    for row in rows:
        table.add_row(*(said(cell) for cell in row))
    return table


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@approvals_app.command("list")
def list_approvals(
    store: Place = DEFAULT_PLACE,
    every: Annotated[bool, typer.Option("--all", help="Those that are decided, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait."""
    gate = gate_of(None, store, None)
    found = run_with(gate, gate.approvals(state=None if every else "pending"))
    if as_json:
        emit([_facts(each) for each in found])
        return
    rows = [(each.id, each.state, each.tool, each.shown, each.caller, each.reason, _moment(each.expires_at)) for each in found]
    emit(_table(("id", "state", "tool", "arguments", "caller", "reason", "until"), rows))


@approvals_app.command()
def show(approval_id: Id, store: Place = DEFAULT_PLACE, as_json: AsJson = False) -> None:
    """Show one request whole."""
    gate = gate_of(None, store, None)
    found = _facts(run_with(gate, gate.approval(approval_id)))
    emit(found if as_json else _table(("what", "is"), [(key, _shown(key, value)) for key, value in found.items()]))


def _facts(approval: ApprovalRecord) -> dict[str, Any]:
    """Give what a person may see of a request: not the exact texts of what runs, in which secrets are not masked."""
    return {key: value for key, value in asdict(approval).items() if key not in {"arguments", "edited"}}


def _shown(key: str, value: object) -> str:
    if key.endswith("_at"):
        return _moment(cast("float | None", value))
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return "" if value is None else str(value)


@approvals_app.command()
def approve(
    approval_id: Id,
    store: Place = DEFAULT_PLACE,
    by: By = None,
    remember: Annotated[str | None, typer.Option(help='Approve further calls of the tool too: "run" or "caller".')] = None,
) -> None:
    """Approve a call as it is shown; whoever resumes its run finds the decision."""
    _decide(approval_id, store, Approve(by=who(by), remember=remember))  # type: ignore[arg-type]  # the gate checks it


@approvals_app.command()
def deny(
    approval_id: Id,
    store: Place = DEFAULT_PLACE,
    by: By = None,
    reason: Annotated[str, typer.Option(help="What the model reads as the reviewer's words.")] = "",
) -> None:
    """Deny a call."""
    _decide(approval_id, store, Deny(by=who(by), reason=reason))


@approvals_app.command()
def edit(
    approval_id: Id,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The tools, for the arguments to be checked.")],
    arguments: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Without it, $EDITOR opens.")] = None,
    store: Place = DEFAULT_PLACE,
    policy: PolicyFile = None,
    by: By = None,
) -> None:
    """Approve a call with other arguments."""
    gate = gate_of(target, there(store), policy)

    async def change() -> None:
        approval = await gate.approval(approval_id)
        text = edited_in_editor(approval.shown) if arguments is None else arguments
        await _recorded(gate, approval_id, Edit(by=who(by), arguments=text))

    run_with(gate, change())


def edited_in_editor(shown: str) -> str:
    """Let a person change arguments in $EDITOR, and give them back.

    Raises:
        UsageError: there is no editor, it failed, or what it left is no JSON object.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("set $EDITOR, or give the arguments as JSON")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "arguments.json"
        file.write_text(json.dumps(json.loads(shown), indent=2) + "\n", encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)  # noqa: S603 - the user's own editor
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            failed = f"the editor {editor!r} failed ({type(error).__name__}): nothing was changed"
            raise UsageError(failed) from error
    return _checked_arguments(text)


def _checked_arguments(text: str) -> str:
    try:
        edited = cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"what was edited is no JSON: {error}") from error
    if not isinstance(edited, dict):
        raise UsageError("what was edited is no JSON object")
    if _holds_mask(cast("object", edited)):
        raise UsageError(f"what was edited holds a masked secret: write its value in the place of {MASK}")
    return text


def _holds_mask(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_mask, cast("dict[str, object]", value).values()))
    return any(map(_holds_mask, cast("list[object]", value))) if isinstance(value, list) else value == MASK


def _decide(approval_id: str, store: str, decision: Decided) -> None:
    gate = gate_of(None, store, None)
    run_with(gate, _recorded(gate, approval_id, decision))


async def _recorded(gate: Gate, approval_id: str, decision: Decided) -> None:
    """Store a decision, and say how the run goes on that waits for it."""
    approval = await gate.record(approval_id, decision)
    typer.echo(line(f"{approval.id} {approval.state} by {approval.decided_by}"))
    if approval.run_id is not None:
        typer.echo(line(f"go on with: callgate {await _going_on(gate, approval.run_id)}"), err=True)


async def _going_on(gate: Gate, run_id: str) -> str:
    """Write the command that goes on with a run: for an agent's within a workflow that of the workflow."""
    for name in (run_id, run_id.partition("/")[0]):
        found = await gate.store.run(name)
        if found is not None and found.kind == "workflow":
            return f"workflow run WORKFLOW TOOLS --resume {name}"
    return f"resume {run_id} TARGET"


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def runs(
    store: Place = DEFAULT_PLACE,
    status: Annotated[str | None, typer.Option(help="running, paused, completed, stopped or failed.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List the runs, the newest first."""
    if status is not None and status not in STATUSES:
        refuse(f"there is no status {status!r}; there are {', '.join(STATUSES)}")
    gate = gate_of(None, store, None)
    found = run_with(gate, gate.store.runs(status=status, limit=limit))  # type: ignore[arg-type]  # it is one
    if as_json:
        emit([{key: value for key, value in asdict(each).items() if key != "state"} for each in found])
        return
    rows = [(each.id, each.kind, each.status, each.caller, each.name or "", _moment(each.updated_at)) for each in found]
    emit(_table(("run", "kind", "status", "caller", "profile", "changed"), rows))


# ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@log_app.callback(invoke_without_command=True)
def log(
    context: typer.Context,
    store: Place = DEFAULT_PLACE,
    run: Annotated[str | None, typer.Option(help="Of one run.")] = None,
    tool: Annotated[str | None, typer.Option(help="Of one tool.")] = None,
    caller: Annotated[str | None, typer.Option(help="Of one caller.")] = None,
    status: Annotated[str | None, typer.Option(help="Ends of one status: succeeded, failed, denied, …")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further records.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Print the journal, oldest first."""
    if context.invoked_subcommand is not None:
        return
    gate = gate_of(None, store, None)
    wanted = JournalFilter(run_id=run, tool=tool, caller=caller, status=status)

    async def read() -> None:
        found, position = await gate.store.records(wanted, limit=limit)
        _print_records(found, as_json=as_json)
        while follow:
            await asyncio.sleep(0.5)
            found, position = await gate.store.records(wanted, limit=limit, after=position)
            _print_records(found, as_json=as_json)

    try:
        run_with(gate, read())
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print_records(records: list[JournalRecord], *, as_json: bool) -> None:
    for record in records:
        typer.echo(for_programs(asdict(record)) if as_json else line(_line(record)))


def _line(record: JournalRecord) -> str:
    place = f"{record.run_id}/{record.call_id}" if record.run_id else record.key
    facts: dict[str, Any] = {"by": record.caller, "approved_by": record.approved_by, "attempt": record.attempt}
    if record.event == "finished":
        facts |= {"error": record.error_code, "bytes": record.output_bytes, "labels": ",".join(record.labels)}
    shown = " ".join(f"{key}={value}" for key, value in facts.items() if value not in {None, "", 0})
    return f"{_moment(record.at)} {place} {record.tool} {record.status or record.event} {shown}"


@log_app.command()
def verify(
    context: typer.Context,
    store: Annotated[str | None, typer.Option("--store", help="As before the command.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Check that no record was changed or removed; exit with 1 when one was. Note the heads to find a cut at the end later."""
    assert context.parent is not None  # it is a command of `log`, whose options may stand before it
    before = context.parent.params
    gate = gate_of(None, store or before["store"], None)
    begun = time.perf_counter()
    found = run_with(gate, gate.store.verify())
    if as_json or before["as_json"]:
        emit({"records": found.records, "heads": found.heads, "breaks": [asdict(each) for each in found.breaks]})
    else:
        for each in found.breaks:
            typer.echo(line(f"BROKEN writer {each.writer}, record {each.seq}: {each.problem}"))
        typer.echo(f"{found.records} records of {len(found.heads)} writers, {len(found.breaks)} breaks")
        typer.echo(f"checked in {time.perf_counter() - begun:.2f} s", err=True)
    raise typer.Exit(BROKEN if found.breaks else 0)
