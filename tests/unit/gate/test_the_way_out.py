"""What a call leaves behind: whatever a hook, a grant, a broken store or a deep value does, its end is told and stored."""

import json

import pytest

from callgate import (
    AbortController,
    Approve,
    Backoff,
    Caller,
    Denied,
    Failed,
    Gate,
    ImageBlock,
    KeepContent,
    Succeeded,
    ToolCall,
    ToolFailedError,
    ToolRegistry,
    UsageError,
    tool,
)
from callgate.errors import StoreError
from callgate.policy import AllowAll, RulePolicy
from callgate.store import JournalFilter, MemoryStore

ALICE = Caller("alice")
CALL = ToolCall("pay", {"amount": 1}, "c")
DEEP = "[" * 100_000 + "]" * 100_000


@tool(kind="write")
async def pay(amount: int) -> str:
    return f"paid {amount}"


def gate_of(*, hooks=(), store=None, policy=None):
    return Gate(ToolRegistry([pay]), policy=policy or AllowAll(), store=store or MemoryStore(), hooks=hooks)


def blocked():
    error = ToolFailedError("pay", "the till is closed")
    yield Succeeded(CALL, "paid by hand", {"by": "hand"}, (ImageBlock(b"slip", "image/png"),))
    yield Failed(CALL, "closed", error)
    yield Denied(CALL, "not now", error, "the till", "closed on sundays")


@pytest.mark.parametrize("given", list(blocked()), ids=lambda given: type(given).__name__)
async def test_what_a_hook_answers_in_the_place_of_a_tool_is_answered_again(given):
    async def hook(_seen, _next):
        return given

    store = MemoryStore()
    assert await gate_of(hooks=[hook], store=store).call(CALL, caller=ALICE, run_id="r") == given
    again = await gate_of(store=store).call(CALL, caller=ALICE, run_id="r")
    assert (type(again), again.text, again.replayed) == (type(given), given.text, True)
    if isinstance(given, Succeeded):
        assert (again.value, again.blocks) == (given.value, given.blocks)
    else:
        assert (again.error.code, again.error.status) == (given.error.code, given.error.status)
        assert again.error.user_message == given.error.user_message
    if isinstance(given, Denied):
        assert (again.by, again.reason) == (given.by, given.reason)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "not NoneType"),
        (Succeeded(CALL, b"paid"), "not bytes"),
        (Failed(CALL, None, ToolFailedError("pay", "no")), "not NoneType"),
        (Failed(CALL, "no", ValueError("no")), "not ValueError"),
        (Denied(CALL, "no", None, None, ""), "not NoneType"),
    ],
)
async def test_what_is_no_outcome_of_a_hook_is_told_to_its_author(given, says):
    async def hook(_seen, _next):
        return given

    with pytest.raises(UsageError, match=says):
        await gate_of(hooks=[hook]).call(CALL, caller=ALICE, run_id="r")


async def test_a_call_that_the_journal_answers_takes_no_use_of_a_grant():
    gate = gate_of(policy=RulePolicy([], default="ask"))
    await gate.grant("pay", by="bob", max_uses=3)
    for _ in range(3):
        assert (await gate.call(CALL, caller=ALICE, run_id="r")).text == '"paid 1"'
    assert [each.uses for each in await gate.grants()] == [1]


async def test_an_approved_call_takes_no_use_of_a_grant_that_came_later():
    gate = gate_of(policy=RulePolicy([], default="ask"))
    pending = await gate.call(CALL, caller=ALICE, run_id="r")
    await gate.grant("pay", by="bob", max_uses=3)
    assert (await gate.call(CALL, caller=ALICE, run_id="r")).approval_id == pending.approval_id
    assert (await gate.decide(pending.approval_id, Approve(by="bob"))).text == '"paid 1"'
    assert [each.uses for each in await gate.grants()] == [0]


async def test_who_stops_a_call_learns_so_though_its_end_cannot_be_stored(caplog):
    class Broken(MemoryStore):
        def finish(self, end, /):
            raise StoreError(f"the disk is full: {end}")

    class Stop(Exception):
        pass

    aborts = AbortController()

    @tool(kind="write")
    async def stop() -> None:
        aborts.abort(Stop())

    gate = Gate(ToolRegistry([stop]), policy=AllowAll(), store=Broken())
    with pytest.raises(Stop):
        await gate.call(ToolCall("stop", {}, "c"), caller=ALICE, signal=aborts.signal)
    assert "end_not_recorded tool=stop status=aborted: StoreError" in caplog.text


async def test_what_is_too_deep_to_be_read_is_kept_by_nobody_and_answered_as_a_text():
    async def hook(_seen, _next):
        return Succeeded(CALL, DEEP)

    store = MemoryStore()
    assert (await gate_of(hooks=[hook], store=store).call(CALL, caller=ALICE, run_id="r")).text == DEEP
    again = await gate_of(store=store).call(CALL, caller=ALICE, run_id="r")
    assert (again.text, again.replayed) == (DEEP, True)
    keep = KeepContent(results=True, redact=("/pin",))
    await Gate(ToolRegistry([pay]), policy=AllowAll(), store=store, hooks=[hook], content=keep).call(CALL, caller=ALICE)
    records, _ = await store.records(JournalFilter())
    assert [json.loads(each.content)["text"] for each in records if each.content and each.run_id is None] == ["(redacted)"]


@pytest.mark.parametrize("wrong", [None, 0, -1, "1", float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["first_s", "most_s"])
def test_a_wait_is_a_number_of_seconds(name, wrong):
    with pytest.raises(UsageError, match=name):
        Backoff(**{name: wrong})


def test_a_wait_has_its_bound_after_any_number_of_attempts():
    backoff = Backoff(first_s=0.5, most_s=10.0)
    assert all(5.0 <= backoff.delay_s(attempt) <= 10.0 for attempt in (6, 64, 2_000, 10**9))
    assert 0.25 <= backoff.delay_s(1) <= 0.5
