"""Runs whose process is killed at any moment, and pauses that many processes decide at once: every write at most once."""

import asyncio
import multiprocessing
import os
import random
import time

import pytest

from callgate import ToolCall
from callgate.agent import LLMClient, RunState, create_run_hooks, prepare_call
from callgate.store import JournalFilter
from callgate.testing import scripted_model
from tests.postgres import fresh_database
from tests.suites import killed_runs
from tests.suites.killed_runs import ALICE, WRITES, carry_on, gate_of, marks, race, run_in_child

QUICK = bool(os.environ.get("CALLGATE_QUICK"))
RUNS = 15 if QUICK else 100  # on each of the two databases
RACES = 15 if QUICK else 100
RACERS = 8


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else fresh_database()


@pytest.fixture(scope="module")
def forkserver():
    """Give processes that begin with everything imported, so that a kill hits the run and not the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([killed_runs.__name__])
    return context


def kill_somewhere(forkserver, url, folder, run_id, longest_s):
    process = forkserver.Process(target=run_in_child, args=(url, str(folder), run_id))
    process.start()
    process.join(random.uniform(0, longest_s))
    process.kill()
    process.join()


async def check_run(gate, folder, run_id):
    """Check a run that is over: every call has one result, every write happened at most once, and what happened was told."""
    run = await carry_on(gate, run_id) if (await gate.store.run(run_id)).status != "completed" else None
    stored = await gate.store.run(run_id)
    assert stored.status == "completed", run
    state = RunState.load(stored.state).messages
    told = {
        part["tool_call_id"]: part["content"]
        for message in state
        for part in message["parts"]
        if part["part_kind"] == "tool-return"
    }
    assert sorted(told) == ["a", "b", "c", "d", "e", "f", "g"]
    for call_id, name in zip(WRITES, ("pay2", "pay3", "pay4", f"refund-{run_id}", "pay7"), strict=True):
        count = marks(folder, name)
        assert count <= 1, f"{name} happened {count} times"
        succeeded = told[call_id].startswith('"')
        assert succeeded <= (count == 1), "a write that did not happen was told as done"
        assert succeeded or "may have happened" in told[call_id], "a result was lost"
    records, _ = await gate.store.records(JournalFilter(run_id=run_id), limit=1000)
    ends = [record.claim for record in records if record.event in {"finished", "unknown"}]
    assert len(set(ends)) == len(ends)
    assert len([record for record in records if record.event == "started"]) == len(ends)
    return sum(told[call_id].startswith('"') for call_id in WRITES)


@pytest.mark.timeout(600)
def test_runs_that_are_killed_at_random_moments_end_and_no_write_happens_twice(forkserver, url, tmp_path):
    folders = [tmp_path / f"r{number}" for number in range(RUNS)]
    for folder in folders:
        folder.mkdir()
    begun = time.monotonic()
    warm = tmp_path / "warm"
    warm.mkdir()
    for _ in range(2):
        begun = time.monotonic()
        process = forkserver.Process(target=run_in_child, args=(url, str(warm), f"warm{begun}"))
        process.start()
        process.join(60)
        assert process.exitcode == 0
    longest_s = time.monotonic() - begun
    for number, folder in enumerate(folders):
        for _ in range(1 + number % 3):  # some are killed again while they are being recovered
            kill_somewhere(forkserver, url, folder, f"run{number}", longest_s)

    async def recover():
        told = 0
        for number, folder in enumerate(folders):
            gate = gate_of(url, str(folder))
            await gate.recover()
            if await gate.store.run(f"run{number}") is None:
                await carry_on(gate, f"run{number}")
            told += await check_run(gate, folder, f"run{number}")
            if number == RUNS - 1:
                assert (await gate.store.verify()).breaks == ()
            await gate.aclose()
        return told

    told = asyncio.run(recover())
    assert told > RUNS, "most results are known"


@pytest.mark.timeout(600)
def test_of_many_processes_that_decide_or_resume_one_pause_exactly_one_runs_the_call(forkserver, url, tmp_path):
    async def pause_all():
        gate = gate_of(url, str(tmp_path))
        client, rounds = LLMClient(scripted_model(ToolCall("refund", {"n": 0}, "e"), "done")), []
        for number in range(RACES):
            prepared = prepare_call(gate, prompt="go", caller=ALICE, run_id=f"race{number}")
            run = await client.run(prepared, create_run_hooks(gate))
            rounds.append((run.run_id, run.pending[0].approval_id))
        await gate.aclose()
        return rounds

    rounds = asyncio.run(pause_all())
    barrier, answers = forkserver.Barrier(RACERS), forkserver.Queue()
    racers = [
        forkserver.Process(target=race, args=(url, str(tmp_path), number, barrier, rounds, answers)) for number in range(RACERS)
    ]
    for racer in racers:
        racer.start()
    ends = dict(answers.get(timeout=400) for _ in racers)
    for racer in racers:
        racer.join(30)
    assert [marks(tmp_path, f"refund-race{number}") for number in range(RACES)] == [1] * RACES
    for number in range(RACES):
        told = [ends[racer][number] for racer in range(RACERS)]
        assert told.count("done") == 1, told
        winner = f"p{told.index('done')}"
        assert {each for each in told if each not in {"done", "conflict"}} <= {winner}, "the others read who decided"

    async def finish_all():
        gate = gate_of(url, str(tmp_path))
        client = LLMClient(scripted_model(ToolCall("refund", {"n": 0}, "e"), "done"))
        for run_id, _ in rounds:
            if (await gate.store.run(run_id)).status == "paused":
                await client.resume(run_id, create_run_hooks(gate))
            assert (await gate.store.run(run_id)).status == "completed"
        await gate.aclose()

    asyncio.run(finish_all())
    assert [marks(tmp_path, f"refund-race{number}") for number in range(RACES)] == [1] * RACES
