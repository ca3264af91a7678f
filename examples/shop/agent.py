"""The second half of the demo: an agent whose run stops for an approval and is finished by another process.

    python -m examples.shop.agent begin  STORE DATABASE      runs until a person has to decide, and ends
    python -m examples.shop.agent finish STORE DATABASE RUN  decides as that person, and goes on with the run

The model is a script, so that it needs no key and no network; everything else is as with a real one.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from callgate import Approve, Caller, Gate, ToolCall
from callgate.agent import (
    AgentEvent,
    CallFinished,
    CallPending,
    CallStarted,
    LLMClient,
    Run,
    RunEnded,
    RunPaused,
    TextDelta,
    create_run_hooks,
    prepare_call,
)
from callgate.policy import RulePolicy
from callgate.store import JournalFilter, open_store
from callgate.testing import Says, scripted_model
from examples.shop.database import database_path
from examples.shop.tools import registry

__all__ = ("ORDER", "begin", "finish", "main")

ORDER = "O-0004"
PROMPT = f"Please cancel my order {ORDER}, I ordered twice. How many SKU-002 have you left?"

model = scripted_model(
    Says(
        "I look at the order and the stock.",
        (
            ToolCall("get_order", {"order_id": ORDER}, "look"),
            ToolCall("check_stock", {"skus": ["SKU-002"]}, "stock"),
            ToolCall("cancel_order", {"order_id": ORDER, "reason": "ordered twice"}, "cancel"),
        ),
    ),
    Says("I make sure.", (ToolCall("get_order", {"order_id": ORDER}, "check"),)),
    "Your order is cancelled.",
)


def gate(store: str) -> Gate:
    """Make the gate around the shop, with the policy that lies beside this file."""
    return Gate(registry, policy=RulePolicy.load(Path(__file__).with_name("policy.toml")), store=open_store(store))


async def begin(store: str) -> Run:
    """Run until a person has to decide."""
    shop = gate(store)
    prepared = prepare_call(shop, prompt=PROMPT, caller=Caller("customer-5", ("agent",)), thread_id="t5")
    run = await _follow(LLMClient(model).stream(prepared, create_run_hooks(shop)))
    await shop.aclose()
    return run


async def finish(store: str, run_id: str) -> Run:
    """Approve what waits, and go on with the run."""
    shop = gate(store)
    waiting = await shop.approvals(run_id=run_id)
    decisions = {approval.id: Approve(by="the shop's manager") for approval in waiting}
    run = await _follow(LLMClient(model).resume_stream(run_id, create_run_hooks(shop), decisions=decisions))
    await _show_journal(shop, run_id)
    await shop.aclose()
    return run


async def _follow(stream: AsyncIterator[AgentEvent]) -> Run:
    run: Run | None = None
    async for event in stream:
        match event:
            case TextDelta(text):
                print(text, end="", flush=True)
            case CallStarted(call):
                print(f"\n  -> {call.name} {call.arguments}", end="")
            case CallFinished(call, outcome):
                print(f"\n  <- {call.name}: {outcome.text[:110]}", end="")
            case CallPending(call, outcome):
                print(f"\n  ?? {call.name} waits for a person: {outcome.approval.reason}", end="")
            case RunPaused(ended) | RunEnded(ended):
                run = ended
            case _:
                continue
    print()
    if run is None:
        raise SystemExit("the run had no end")
    return run


async def _show_journal(shop: Gate, run_id: str) -> None:
    records, _ = await shop.store.records(JournalFilter(run_id=run_id))
    for record in records:
        approved = f", approved by {record.approved_by}" if record.approved_by else ""
        print(f"  {record.call_id}: {record.event} {record.status or ''}{approved}")
    checked = await shop.store.verify()
    print(f"  {checked.records} records by {len(checked.heads)} processes, {len(checked.breaks)} breaks in their chains")


def main(arguments: list[str]) -> int:
    """Do what the command line says; give 0 when it came out as it should."""
    what, store, database, *further = arguments
    database_path.set(Path(database))
    if what == "begin":
        run = asyncio.run(begin(store))
        print(f"RUN {run.run_id}")
        return 0 if run.status == "paused" else 1
    run = asyncio.run(finish(store, further[0]))
    return 0 if run.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
