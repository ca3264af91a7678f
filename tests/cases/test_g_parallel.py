"""Cases g1 to g10: many calls of one step."""

import asyncio
import threading
import time

from callgate import Caller, Failed, Gate, Succeeded, ToolCall, ToolRegistry, tool
from callgate.policy import AllowAll, RulePolicy
from callgate.store import JournalFilter
from callgate.testing import gate_for

ALICE = Caller("alice")


async def test_g1_twenty_calls_with_a_limit_of_three_peak_at_three_and_waiting_costs_no_time_limit():
    running, peak = 0, 0

    @tool(kind="read", timeout_s=2)
    async def work(n: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.35)
        running -= 1
        return n

    gate = Gate(ToolRegistry([work]), policy=AllowAll(), max_parallel=3)
    outcomes = await gate.call_many([ToolCall("work", {"n": n}) for n in range(20)], caller=ALICE)
    assert peak == 3
    assert [outcome.value for outcome in outcomes] == list(range(20)), "together they took longer than the limit of one"


async def test_g2_calls_of_exclusive_tools_run_strictly_in_order():
    log = []

    @tool(kind="write", exclusive=True)
    async def write_csv() -> None:
        await asyncio.sleep(0.01)
        log.append("written")

    @tool(kind="read", exclusive=True)
    async def read_csv() -> str:
        log.append("read")
        return "read"

    await gate_for(write_csv, read_csv).call_many([ToolCall("write_csv"), ToolCall("read_csv")], caller=ALICE)
    assert log == ["written", "read"]


async def test_g4_the_same_tool_twice_has_two_results():
    @tool(kind="read")
    async def read_file(path: str) -> str:
        return path

    outcomes = await gate_for(read_file).call_many([ToolCall("read_file", {"path": p}) for p in "ab"], caller=ALICE)
    assert [outcome.value for outcome in outcomes] == ["a", "b"]


async def test_g5_a_limit_of_two_lets_exactly_two_of_three_parallel_calls_run():
    ran = []

    @tool(kind="read")
    async def work(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    rules = 'default = "allow"\n[[budget]]\nid = "b"\nper = "run"\nlimit = 2\n'
    for number in range(20):
        gate = gate_for(work, policy=RulePolicy.parse(rules))
        outcomes = await gate.call_many([ToolCall("work", {"n": n}) for n in range(3)], caller=ALICE, run_id=f"r{number}")
        assert [outcome.is_error for outcome in outcomes].count(True) == 1
    assert len(ran) == 40


async def test_g6_parallel_calls_of_a_sync_tool_share_state_safely_when_they_say_so():
    count = 0

    @tool(kind="write", max_concurrency=1)
    def add() -> int:
        nonlocal count
        seen = count
        time.sleep(0)
        count = seen + 1
        return count

    await gate_for(add).call_many([ToolCall("add") for _ in range(100)], caller=ALICE)
    assert count == 100


async def test_g7_blocking_tools_run_at_the_same_time():
    together = threading.Barrier(3, timeout=20)

    @tool(kind="read")
    def block() -> str:
        together.wait()
        return "ok"

    outcomes = await gate_for(block).call_many([ToolCall("block") for _ in range(3)], caller=ALICE)
    assert [type(outcome) for outcome in outcomes] == [Succeeded] * 3


async def test_g8_a_call_of_a_run_without_an_id_is_given_one_and_never_guessed():
    @tool(kind="read")
    async def work(n: int) -> int:
        return n

    gate = gate_for(work)
    outcomes = await gate.call_many([ToolCall("work", {"n": 1}), ToolCall("work", {"n": 2})], caller=ALICE, run_id="r")
    assert [(outcome.call.id, outcome.value) for outcome in outcomes] == [("call_1", 1), ("call_2", 2)]


async def test_g9_the_same_step_twice_runs_once_and_gives_the_stored_results():
    ran = []

    @tool(kind="write")
    async def work(n: int) -> int:
        ran.append(n)
        return n

    gate = gate_for(work)
    step = [ToolCall("work", {"n": n}, f"c{n}") for n in range(3)]
    first = await gate.call_many(step, caller=ALICE, run_id="r")
    second = await gate.call_many(step, caller=ALICE, run_id="r")
    assert [outcome.text for outcome in first] == [outcome.text for outcome in second]
    assert ran == [0, 1, 2]


async def test_g9_two_at_once_run_it_once():
    ran, go = [], asyncio.Event()

    @tool(kind="write")
    async def work() -> str:
        ran.append(1)
        await go.wait()
        return "done"

    gate = gate_for(work)
    first = asyncio.ensure_future(gate.call(ToolCall("work", None, "c"), caller=ALICE, run_id="r"))
    await asyncio.sleep(0)
    second = await gate.call(ToolCall("work", None, "c"), caller=ALICE, run_id="r")
    assert isinstance(second, Failed)
    assert second.error.status == 409
    go.set()
    assert (await first).value == "done"
    assert ran == [1]


async def test_g10_there_is_one_end_for_each_start():
    @tool(kind="read")
    async def work(n: int) -> int:
        return 1 // n

    gate = gate_for(work)
    for _ in range(3):
        await gate.call_many([ToolCall("work", {"n": n}, f"c{n}") for n in range(3)], caller=ALICE, run_id="r")
    records, _ = await gate.store.records(JournalFilter(run_id="r"))
    assert [record.event for record in records].count("started") == 3
    assert [record.event for record in records].count("finished") == 3
