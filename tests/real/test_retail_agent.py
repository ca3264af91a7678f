"""The 114 support tasks through the whole loop: a model by script, a policy, a journal on disk, and a manager in another process
who approves every change."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import Caller, Gate, ToolCall, ToolRegistry
from callgate.agent import LLMClient, create_run_hooks, prepare_call
from callgate.policy import RulePolicy
from callgate.store import JournalFilter, SQLStore
from callgate.testing import scripted_model
from tests.real.retail_tools import Shop
from tests.real.test_retail_shop import TASKS, as_json, read, task

RULES = """
default = "deny"
[[rule]]
id = "reads"
decision = "allow"
kinds = ["read"]
[[rule]]
id = "changes"
decision = "ask"
kinds = ["write"]
reason = "a manager approves changes"
"""
MANAGER = """
import asyncio, sys
from callgate import Approve, ConflictError, Gate, ToolRegistry
from callgate.policy import AllowAll
from callgate.store import SQLStore
async def go():
    gate = Gate(ToolRegistry([]), policy=AllowAll(), store=SQLStore(sys.argv[1]))
    print("ready", flush=True)
    while True:
        for waiting in await gate.approvals():
            await gate.record(waiting.id, Approve(by="manager"))
        await asyncio.sleep(0.01)
asyncio.run(go())
"""


async def decided(store: SQLStore, approval_id: str) -> None:
    for _ in range(4000):
        approval = await store.approval(approval_id)
        if approval is not None and approval.state != "pending":
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the manager did not decide")


async def run_task(url: str, number: int) -> tuple[Shop, list[str]]:
    """Run a task; each resume is by a gate that was built anew, as after a restart."""
    shop = Shop(read("db.json"))
    actions = task(number)["actions"]
    script = [ToolCall(action["name"], action["arguments"], f"c{n}") for n, action in enumerate(actions)]

    def gate() -> Gate:
        return Gate(ToolRegistry(shop.tools()), policy=RulePolicy.parse(RULES), store=store)

    store = SQLStore(url)
    client = LLMClient(scripted_model(*script, "done"))
    first = gate()
    prepared = prepare_call(first, prompt="help", caller=Caller(f"customer-{number}"), run_id=f"task{number}")
    run = await client.run(prepared, create_run_hooks(first))
    while run.status == "paused":
        for pending in run.pending:
            await decided(store, pending.approval_id)
        run = await client.resume(run.run_id, create_run_hooks(gate()))
    assert (run.status, run.output) == ("completed", "done")
    texts = [part.content for message in run.messages for part in message.parts if part.part_kind == "tool-return"]
    await check_journal(store, number, actions)
    await store.aclose()
    return shop, texts


async def check_journal(store: SQLStore, number: int, actions: list[dict]) -> None:
    records, _ = await store.records(JournalFilter(run_id=f"task{number}"), limit=1000)
    assert [record.event for record in records].count("started") == len(actions)
    ends = {record.call_id: record for record in records if record.event == "finished"}
    for n, action in enumerate(actions):
        end = ends[f"c{n}"]
        assert end.status == ("failed" if "error" in action else "succeeded")
        assert end.approved_by == ("manager" if end.kind == "write" else None)


@pytest.mark.timeout(300)
def test_every_task_comes_out_as_recorded_with_each_change_approved_by_another_process(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'callgate.db'}"
    read("db.json")
    manager = subprocess.Popen([sys.executable, "-c", MANAGER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert manager.stdout is not None
        assert manager.stdout.readline() == "ready\n"

        async def go() -> None:
            for number in range(TASKS):
                shop, texts = await run_task(url, number)
                assert as_json(shop.changed()) == task(number)["changed"]
                for text, action in zip(texts, task(number)["actions"], strict=True):
                    if "error" in action:
                        assert text.startswith(action["error"])
                    else:
                        assert json.loads(text) == action["ok"]

        asyncio.run(go())
    finally:
        manager.kill()
        manager.wait()
        if manager.stdout is not None:
            manager.stdout.close()
