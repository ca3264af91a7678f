"""The demo: recorded calls, right and wrong, go through the gate in parallel; what happened is shown and checked."""

import asyncio
import contextvars
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from callgate import CallContext, ToolReply
from examples.shop.database import create, database_path, reading
from examples.shop.recorded import RecordedCall, load, mismatches
from examples.shop.tools import SECRET, registry

__all__ = ("main",)

# Eight recorded calls take two each of this product, at the same time.
CONTESTED, TAKEN = "SKU-001", 16


@dataclass(frozen=True, slots=True)
class Answered:
    """Hold a recorded call with what it got."""

    call: RecordedCall
    reply: ToolReply


@dataclass(frozen=True, slots=True)
class Batch:
    """Hold what a run of the demo saw: every answer, the seconds it took, and what the stock lost."""

    answers: list[Answered]
    took_s: float
    taken: int
    log: list[str]


class _ServerLog(logging.Handler):
    """Keep what the server's log gets, secrets included: it is for the operator, no model reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def main() -> int:
    """Run the demo and print it; give 0, or 1 when an answer is not the recorded one."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    batch = contextvars.copy_context().run(_play, console)
    wrong = [line for answered in batch.answers for line in _wrong(answered)]
    if batch.taken != TAKEN:
        wrong.append(f"{CONTESTED}: {TAKEN} units were taken, but the stock lost {batch.taken}")
    console.print(_receipts(batch.answers), _failures(batch.answers), _totals(batch))
    for line in wrong:
        console.print(Text(f"UNEXPECTED {line}", style="bold red"))
    if not wrong:
        console.print(Text(f"All {len(batch.answers)} calls were answered as recorded.", style="bold green"))
    return 1 if wrong or not _agent(console) else 0


def _agent(console: Console) -> bool:
    """Let an agent run in one process until it needs an approval, and finish it in another; tell whether that came out."""
    with tempfile.TemporaryDirectory(prefix="callgate-demo-") as folder:
        store, shop = Path(folder) / "callgate.db", create(Path(folder) / "shop.sqlite")
        console.rule("An agent, until a person has to decide")
        begun = _part("begin", str(store), str(shop))
        run_id = begun.stdout.rpartition("RUN ")[2].strip()
        console.print(Text(begun.stdout.rpartition("RUN ")[0]))
        if begun.returncode:
            console.print(Text(begun.stderr, style="red"))
            return False
        console.rule("That process is gone; another one approves and goes on")
        finished = _part("finish", str(store), str(shop), run_id)
        console.print(Text(finished.stdout + finished.stderr))
    if finished.returncode == 0:
        console.print(Text("The run was finished by the second process; each call ran once.", style="bold green"))
    return finished.returncode == 0


def _part(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "examples.shop.agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this program, with its own words


def _play(console: Console) -> Batch:
    """Send every recorded call to a shop made for this run, and follow them."""
    calls, log = load(), _ServerLog()
    logger = logging.getLogger("callgate")
    logger.addHandler(log)
    logger.propagate = False
    with tempfile.TemporaryDirectory(prefix="callgate-demo-") as folder, _progress(console) as progress:
        database_path.set(create(Path(folder) / "shop.sqlite"))
        task = progress.add_task("calls", total=len(calls), ok=0, refused=0)
        before, started = _stock(), time.perf_counter()
        answers = asyncio.run(_send(calls, lambda done: _show(progress, task, done)))
        return Batch(answers, time.perf_counter() - started, before - _stock(), log.lines)


async def _send(calls: list[RecordedCall], follow: Callable[[list[Answered]], None]) -> list[Answered]:
    """Send all calls at once; `follow` is given what is answered so far, each time an answer comes."""
    done: list[Answered] = []

    async def send(call: RecordedCall) -> Answered:
        context = CallContext(run_id="demo", call_id=call.id)
        answered = Answered(call, await registry.answer(call.tool, call.arguments, call_context=context))
        done.append(answered)
        follow(done)
        return answered

    return await asyncio.gather(*map(send, calls))


def _show(progress: Progress, task: TaskID, done: list[Answered]) -> None:
    refused = sum(answered.reply.is_error for answered in done)
    progress.update(task, completed=len(done), ok=len(done) - refused, refused=refused)


def _wrong(answered: Answered) -> list[str]:
    call = answered.call
    return [f"{call.id} {call.tool}: {difference}" for difference in mismatches(call, answered.reply)]


def _stock() -> int:
    with reading() as database:
        (stock,) = database.execute("SELECT stock FROM products WHERE sku = ?", (CONTESTED,)).fetchone()
    return int(stock)


def _progress(console: Console) -> Progress:
    counts = TextColumn("[green]{task.fields[ok]} answered[/]  [yellow]{task.fields[refused]} refused or failed[/]")
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), counts, TimeElapsedColumn(), console=console
    )


def _receipts(answers: list[Answered]) -> RenderableType:
    table = Table(title="Receipts", title_justify="left", header_style="bold")
    for column in ("call", "tool", "status", "code"):
        table.add_column(column, overflow="fold")
    for column in ("ms", "bytes in", "bytes out"):
        table.add_column(column, justify="right")
    table.add_column("repairs and notes", overflow="fold")
    for answered in answers:
        table.add_row(*_receipt_row(answered))
    return table


def _receipt_row(answered: Answered) -> list[Text]:
    receipt = answered.reply.invocation
    code = f"{receipt.error_status} {receipt.error_code}" if receipt.error_code else ""
    cells = [
        *(answered.call.id, receipt.tool, receipt.status, code),
        *(f"{receipt.duration_ms:.1f}", f"{receipt.input_bytes}", f"{receipt.output_bytes}"),
        "; ".join((*receipt.repairs, *receipt.notes)),
    ]
    style = "yellow" if answered.reply.is_error else ""
    return [Text(cell, style=style) for cell in cells]


def _failures(answers: list[Answered]) -> RenderableType:
    table = Table(title="What the model read for each failure", title_justify="left", header_style="bold", show_lines=True)
    table.add_column("call")
    table.add_column("sent", overflow="fold", max_width=50)
    table.add_column("read", overflow="fold")
    for answered in (answered for answered in answers if answered.reply.is_error):
        sent = f"{answered.call.tool} {answered.call.arguments}"
        table.add_row(Text(answered.call.id), Text(sent), Text(answered.reply.text))
    return table


def _totals(batch: Batch) -> RenderableType:
    receipts = [answered.reply.invocation for answered in batch.answers]
    codes = Counter(f"{receipt.error_status} {receipt.error_code}" for receipt in receipts if receipt.error_code)
    table = Table(title="Totals", title_justify="left", show_header=False)
    rows = {
        "calls": f"{len(receipts)} in parallel, in {batch.took_s:.2f} s",
        "one after another": f"{sum(receipt.duration_ms for receipt in receipts) / 1000:.2f} s",
        "succeeded": f"{sum(receipt.status == 'succeeded' for receipt in receipts)}",
        **{code: f"{count}" for code, count in sorted(codes.items())},
        "repaired": f"{sum(bool(receipt.repairs) for receipt in receipts)}",
        f"stock of {CONTESTED}": f"{batch.taken} taken by 8 parallel writes of 2",
        "the secret": f"{sum(SECRET in line for line in batch.log)} times in the server's log, never in what a model read",
    }
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))
    return Group(table)
