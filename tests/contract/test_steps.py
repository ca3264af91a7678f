"""Row P13: the calls of one step run side by side, answers keep their order, one failure cancels nobody, barriers hold."""

import asyncio

import pytest

from callgate import (
    AbortController,
    Approve,
    Backoff,
    Caller,
    Failed,
    Gate,
    Pending,
    Succeeded,
    ToolCall,
    ToolError,
    ToolRegistry,
    tool,
)
from callgate.policy import AllowAll
from callgate.store import JournalFilter, SQLStore
from callgate.testing import gate_for
from tests.postgres import fresh_database

ALICE = Caller("alice")


def many(name, count):
    return [ToolCall(name, {"number": number}) for number in range(count)]


async def test_p13_calls_run_side_by_side_and_answers_keep_their_order():
    arrived = []
    together = asyncio.Event()

    @tool(kind="read")
    async def work(number: int) -> int:
        arrived.append(number)
        if len(arrived) == 5:
            together.set()
        await together.wait()  # nobody goes on before all have come
        return number

    outcomes = await asyncio.wait_for(gate_for(work).call_many(many("work", 5), caller=ALICE), 20)
    assert [outcome.value for outcome in outcomes] == list(range(5))


async def test_p13_one_failure_cancels_nobody():
    @tool(kind="read")
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        if number == 1:
            raise ZeroDivisionError
        await asyncio.sleep(0.01)
        return number

    outcomes = await gate_for(work).call_many([*many("work", 3), ToolCall("none")], caller=ALICE)
    assert [type(outcome) for outcome in outcomes] == [Succeeded, Failed, Succeeded, Failed]


async def test_p13_at_most_so_many_run_at_a_time_in_a_step_and_of_a_tool():
    running, peak = 0, {"wide": 0, "narrow": 0}

    async def measure(name):
        nonlocal running
        running += 1
        peak[name] = max(peak[name], running)
        await asyncio.sleep(0.002)
        running -= 1

    @tool(kind="read")
    async def wide(number: int) -> None:
        await measure("wide")

    @tool(kind="read", max_concurrency=2)
    async def narrow(number: int) -> None:
        await measure("narrow")

    gate = Gate(ToolRegistry([wide, narrow]), policy=AllowAll(), max_parallel=3)
    await gate.call_many(many("wide", 20), caller=ALICE)
    await gate.call_many(many("narrow", 20), caller=ALICE)
    assert peak == {"wide": 3, "narrow": 2}


async def test_p13_an_exclusive_tool_waits_for_those_before_it_and_holds_back_those_behind():
    log = []

    @tool(kind="read")
    async def read(number: int) -> None:
        log.append(f"read{number}")
        await asyncio.sleep(0.002)
        log.append(f"/read{number}")

    @tool(kind="write", exclusive=True)
    async def write(number: int) -> None:
        log.append(f"write{number}")
        await asyncio.sleep(0.002)
        log.append(f"/write{number}")

    order = [("read", 0), ("read", 1), ("functions.write", 2), ("write", 3), ("read", 4)]
    await gate_for(read, write).call_many([ToolCall(name, {"number": n}) for name, n in order], caller=ALICE)
    assert log == ["read0", "read1", "/read0", "/read1", "write2", "/write2", "write3", "/write3", "read4", "/read4"]


async def test_p13_missing_and_repeated_ids_are_repaired_and_each_call_gets_its_own_result():
    @tool(kind="read")
    async def work(number: int) -> int:
        return number

    given = [ToolCall("work", {"number": n}, call_id) for n, call_id in enumerate(["a", None, "a", "call_2", "a", ""])]
    gate = gate_for(work)
    outcomes = await gate.call_many(given, caller=ALICE, run_id="r")
    ids = [outcome.call.id for outcome in outcomes]
    assert len(set(ids)) == 6
    assert (ids[0], ids[3]) == ("a", "call_2")
    assert [outcome.value for outcome in outcomes] == list(range(6))
    again = await gate.call_many(given, caller=ALICE, run_id="r")
    assert [outcome.replayed for outcome in again] == [True] * 6, "the same step gets the same ids"


async def test_p13_outcomes_are_told_as_they_come():
    slow = asyncio.Event()

    @tool(kind="read")
    async def work(number: int) -> int:
        if number == 0:
            await slow.wait()
        return number

    told = []

    def tell(place, outcome):
        told.append((place, outcome.value))
        if place == 1:
            slow.set()

    await gate_for(work).call_many(many("work", 2), caller=ALICE, on_outcome=tell)
    assert told == [(1, 1), (0, 0)]


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_p13_when_a_step_is_stopped_every_call_that_was_started_has_an_end(how):
    begun = asyncio.Semaphore(0)

    @tool(kind="write")
    async def work(number: int) -> None:
        begun.release()
        await asyncio.Event().wait()

    gate, controller = gate_for(work), AbortController()
    step = asyncio.ensure_future(gate.call_many(many("work", 4), caller=ALICE, run_id="r", signal=controller.signal))
    for _ in range(4):
        await begun.acquire()
    if how == "abort":
        controller.abort(ZeroDivisionError("enough"))
        with pytest.raises(ZeroDivisionError):
            await step
    else:
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
    records, _ = await gate.store.records(JournalFilter())
    ends = [record for record in records if record.event == "finished"]
    assert [record.event for record in records].count("started") == len(ends) == 4
    assert {record.status for record in ends} == {"aborted" if how == "abort" else "cancelled"}


async def test_p13_only_declared_transient_errors_of_idempotent_tools_are_tried_again():
    seen = []

    @tool(kind="read", idempotent=True, retries=2)
    async def flaky(number: int) -> str:
        seen.append(number)
        if len(seen) < 3:
            raise ConnectionError("reset")
        return "ok"

    @tool(kind="read", idempotent=True, retries=2)
    async def wrong(number: int) -> str:
        seen.append(number)
        raise ValueError

    @tool(kind="read", idempotent=True, retries=2, transient=(ToolError,))
    async def refuses(number: int) -> str:
        seen.append(number)
        raise ToolError("busy")

    gate = Gate(ToolRegistry([flaky, wrong, refuses]), policy=AllowAll(), backoff=Backoff(first_s=0.001))
    outcome = await gate.call(ToolCall("flaky", {"number": 1}, "1"), caller=ALICE, run_id="r")
    assert outcome.text == '"ok"'
    assert [receipt.attempt for receipt in outcome.attempts] == [1, 2, 3]
    assert [receipt.status for receipt in outcome.attempts] == ["failed", "failed", "succeeded"]
    events = [(record.event, record.number, record.status) for record in await gate.store.call("r/1")]
    assert events == [
        *[("started", 0, None), ("finished", 0, "retried")],
        *[("started", 1, None), ("finished", 1, "retried")],
        *[("started", 2, None), ("finished", 2, "succeeded")],
    ]
    seen.clear()
    assert len((await gate.call(ToolCall("wrong", {"number": 1}), caller=ALICE)).attempts) == 1
    outcome = await gate.call(ToolCall("refuses", {"number": 1}), caller=ALICE)
    assert len(outcome.attempts) == 3
    assert outcome.error.user_message == "busy"


async def test_p13_a_step_with_a_call_that_asks_runs_the_others():
    ran = []

    @tool(kind="write", needs_approval=True)
    async def wipe(number: int) -> None:
        ran.append("wipe")

    @tool(kind="read")
    async def work(number: int) -> None:
        ran.append(number)

    outcomes = await gate_for(wipe, work).call_many([*many("work", 1), *many("wipe", 1), *many("work", 1)], caller=ALICE)
    assert [type(outcome) for outcome in outcomes] == [Succeeded, Pending, Succeeded]
    assert ran == [0, 0]


@pytest.mark.parametrize("call_id", ["a\x00b", "a\ud800", "x" * 5000, "../#0000!"])
@pytest.mark.parametrize("asks", [False, True])
async def test_p13_whatever_a_model_takes_for_an_id_its_call_runs_once(call_id, asks):
    ran = []

    @tool(kind="write", needs_approval=asks)
    async def pay() -> str:
        ran.append(1)
        return "paid"

    gate = Gate(ToolRegistry([pay]), policy=AllowAll(), store=SQLStore(fresh_database()))
    outcome = await gate.call(ToolCall("pay", {}, call_id), caller=ALICE, run_id="r")
    if asks:
        outcome = await gate.decide(outcome.approval_id, Approve(by="bob"))
    again = await gate.call(ToolCall("pay", {}, call_id), caller=ALICE, run_id="r")
    assert (type(outcome), type(again), again.replayed, ran) == (Succeeded, Succeeded, True, [1])
    await gate.aclose()
