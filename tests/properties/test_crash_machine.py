"""A machine over gate, store, approvals and runs, whose process crashes at any step of the store.

Whatever happens in whatever order: no write runs twice, nothing that was decided is undone, what was told as done was done,
and in the end every call of every run has exactly one result.
"""

import asyncio
import itertools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from callgate import (
    Approve,
    Backoff,
    Caller,
    ConflictError,
    Deny,
    Edit,
    Gate,
    ToolContext,
    ToolDeniedError,
    ToolRegistry,
    tool,
)
from callgate.agent import LLMClient, RunState, create_run_hooks, prepare_call
from callgate.policy import RulePolicy
from callgate.store import JournalFilter, SQLStore
from callgate.testing import calls, scripted_model
from tests.postgres import fresh_database

ALICE = Caller("alice")
RULES = """
default = "allow"
[[rule]]
id = "large"
decision = "ask"
tools = ["pay"]
when = [{ path = "/amount", op = ">", value = 10 }]
[[rule]]
id = "never"
decision = "deny"
tools = ["pay"]
when = [{ path = "/amount", op = ">", value = 1000 }]
"""
_numbers = itertools.count()


class Crash(BaseException):
    """Be the end of a process at this very moment."""


class Mortal:
    """Be a store whose process crashes at its n-th operation: before it is done, or when it is but nobody has heard of it."""

    def __init__(self, store, crash_in, after):
        self._store, self._left, self._after, self.dead = store, crash_in, after, False

    def __getattr__(self, name):
        inner = getattr(self._store, name)
        if name in {"writer", "spill", "aclose"} or not callable(inner):
            return inner

        def operate(*args, **kwargs):
            if self.dead:
                raise Crash
            self._left -= 1
            if self._left == 0 and not self._after:
                self.dead = True
                raise Crash
            return self._finish(inner(*args, **kwargs), crash=self._left == 0)

        return operate

    async def _finish(self, answer, *, crash):
        value = await answer
        if crash:
            self.dead = True
        if self.dead:
            raise Crash
        return value


class Machine(RuleBasedStateMachine):
    """Drive runs of one gate, in processes that crash."""

    make_url = None
    runs = Bundle("runs")

    def __init__(self):
        super().__init__()
        self.url = self.make_url()
        self.runner = asyncio.Runner()
        self.paid = {}
        self.scripts = {}
        self.decided = {}

    def teardown(self):
        self.runner.run(self._finish_all())
        self.runner.close()

    # ── processes ──

    def registry(self):
        @tool(kind="read")
        async def look(number: int) -> int:
            return number

        @tool(kind="read", idempotent=True, retries=1)
        async def flaky(number: int, context: ToolContext) -> int:
            if context.call_context.attempt == 1:
                raise ConnectionError
            return number

        @tool(kind="write")
        async def pay(amount: int, context: ToolContext) -> str:
            place = context.call_context
            key = (place.run_id, place.call_id)
            self.paid[key] = self.paid.get(key, 0) + 1
            return f"paid {amount}"

        return ToolRegistry([look, flaky, pay])

    def process(self, act, crash_in=0, *, after=False):
        """Run `act(gate)` in a process that may crash; tell whether it came to its end."""

        async def live():
            store = SQLStore(self.url)
            mortal = Mortal(store, crash_in, after)
            gate = Gate(self.registry(), policy=RulePolicy.parse(RULES), store=mortal, backoff=Backoff(first_s=0.0001))
            try:
                await act(gate)
            except (ConflictError, ToolDeniedError):
                return
            finally:
                await store.aclose()

        try:
            self.runner.run(live())
        except Crash:
            self.runner.close()
            self.runner = asyncio.Runner()

    # ── what may happen ──

    @rule(
        target=runs,
        script=st.lists(
            st.lists(
                st.tuples(st.sampled_from(["look", "flaky", "pay"]), st.sampled_from([1, 50, 60, 5000])), min_size=1, max_size=4
            ),
            min_size=1,
            max_size=3,
        ),
        crash_in=st.integers(0, 14),
        after=st.booleans(),
    )
    def begin(self, script, crash_in, after):
        run_id = f"run{next(_numbers)}"
        turns = [
            calls(*[(name, {"amount" if name == "pay" else "number": value}) for name, value in step], prefix=f"s{n}.")
            for n, step in enumerate(script)
        ]
        self.scripts[run_id] = turns

        async def act(gate):
            await self._client(run_id).run(prepare_call(gate, prompt="go", caller=ALICE, run_id=run_id), create_run_hooks(gate))

        self.process(act, crash_in, after=after)
        return run_id

    def _client(self, run_id):
        return LLMClient(scripted_model(*self.scripts[run_id], "done"))

    @rule(run_id=runs, crash_in=st.integers(0, 12), after=st.booleans())
    def resume(self, run_id, crash_in, after):
        async def act(gate):
            if await gate.store.run(run_id) is not None:
                await self._client(run_id).resume(run_id, create_run_hooks(gate))

        self.process(act, crash_in, after=after)

    @rule(
        run_id=runs,
        how=st.sampled_from(["approve", "deny", "edit", "edit badly"]),
        at_once=st.booleans(),
        crash_in=st.integers(0, 12),
        after=st.booleans(),
    )
    def decide(self, run_id, how, at_once, crash_in, after):
        decision = {
            "approve": Approve(by="bob"),
            "deny": Deny(by="bob", reason="no"),
            "edit": Edit(by="bob", arguments={"amount": 3}),
            "edit badly": Edit(by="bob", arguments={"amount": 9999}),
        }[how]

        async def act(gate):
            pending = await gate.approvals(run_id=run_id)
            if pending:
                await (gate.decide if at_once else gate.record)(pending[0].id, decision)

        self.process(act, crash_in, after=after)

    @rule(run_id=runs)
    def make_the_last_step_again(self, run_id):
        """Feed the calls of the run to the gate once more, past its loop: those that have ended are answered from the journal."""

        async def act(gate):
            records, _ = await gate.store.records(JournalFilter(run_id=run_id, event="finished"), limit=1000)
            ended = {record.call_id for record in records if record.status not in {"retried", "cancelled"}}
            again = [call for step in self.scripts[run_id] for call in step if call.id in ended]
            for outcome in await gate.call_many(again, caller=ALICE, run_id=run_id):
                assert outcome.receipt is None, "it ran again"

        self.process(act)

    @rule()
    def recover(self):
        async def act(gate):
            await gate.recover()

        self.process(act)

    # ── what always holds ──

    @invariant()
    def no_write_happened_twice(self):
        assert all(count == 1 for count in self.paid.values())

    @invariant()
    def nothing_that_was_decided_is_undone(self):
        async def act(gate):
            for approval in await gate.approvals(state=None):
                if approval.id in self.decided:
                    assert approval == self.decided[approval.id]
                elif approval.state != "pending":
                    self.decided[approval.id] = approval
                assert approval.edited is None or "3" in approval.edited, "an edit that the policy denies decided"

        self.process(act)

    async def _finish_all(self):
        store = SQLStore(self.url)
        gate = Gate(self.registry(), policy=RulePolicy.parse(RULES), store=store, backoff=Backoff(first_s=0.0001))
        for run_id in self.scripts:
            if await store.run(run_id) is not None:
                await self._finish(gate, run_id)
        assert all(count == 1 for count in self.paid.values())
        assert (await store.verify()).breaks == ()
        assert await store.unfinished(stale_after_s=1000) == []
        await store.aclose()

    async def _finish(self, gate, run_id):
        hooks, client = create_run_hooks(gate), self._client(run_id)
        while (stored := await gate.store.run(run_id)).status not in {"completed", "stopped"}:
            for approval in await gate.approvals(run_id=run_id):
                await gate.record(approval.id, Approve(by="bob"))
            await client.resume(run_id, hooks)
        told = {}
        for message in RunState.load(stored.state).messages:
            for part in message["parts"]:
                if part["part_kind"] == "tool-return":
                    assert part["tool_call_id"] not in told
                    told[part["tool_call_id"]] = part["content"]
        expected = [call.id for step in self.scripts[run_id] for call in step]
        assert sorted(told) == sorted(expected)
        for step in self.scripts[run_id]:
            for call in step:
                done = (run_id, call.id) in self.paid
                if call.name == "pay":
                    assert done or not told[call.id].startswith('"paid'), "told as done, and was not"
                    if call.arguments["amount"] == 5000:
                        assert not done
                elif call.name == "look":
                    assert told[call.id] == str(call.arguments["number"])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_crashes_at_any_step_lose_nothing_and_repeat_nothing(database, tmp_path_factory):
    def make_url(_self):
        if database == "postgresql":
            return fresh_database()
        folder = tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp())
        return f"sqlite:///{Path(folder) / 'store.db'}"

    kind = type("Machine", (Machine,), {"make_url": make_url})
    examples = 8 if os.environ.get("CALLGATE_QUICK") else 25
    run_state_machine_as_test(
        kind,
        settings=settings(max_examples=examples, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)),
    )
