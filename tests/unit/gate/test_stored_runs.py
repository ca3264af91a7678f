"""`StoredState` and `StoredRuns`: what is stored of a run, and that one loop is at it at a time."""

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from callgate import (
    AbortController,
    AbortedError,
    ConflictError,
    Failed,
    Gate,
    NotFoundError,
    RunStateError,
    Succeeded,
    ToolCall,
    ToolRegistry,
    UsageError,
)
from callgate.gate.stored_runs import StillAtWorkError, StoredRuns, StoredState, checked_state, entered, known, whole
from callgate.policy import AllowAll
from callgate.store import MemoryStore


class Kept(StoredState):
    FORMAT: ClassVar[str] = "tests"
    KIND: ClassVar[Literal["agent", "workflow"]] = "agent"

    format: Literal["tests"] = "tests"
    version: Literal[1] = 1
    facts: dict[str, Any] = Field(default_factory=dict)


@dataclass
class Open:
    state: Kept
    record: Any


@pytest.fixture
def runs():
    return StoredRuns(Gate(ToolRegistry([]), policy=AllowAll(), store=MemoryStore()))


async def begun(runs, run_id="r"):
    state = Kept(run_id=run_id)
    return Open(state, await runs.begin(state, caller="alice", name=None, thread_id=None))


@pytest.mark.parametrize("facts", [{}, {"a": "é"}, {"a": math.inf}, {"\U0001f600": [1, {"b": None}]}])
def test_a_state_is_read_as_it_was_written(facts):
    assert Kept.load(Kept(run_id="r", facts=facts).dump()).facts == facts


def test_halves_of_characters_are_put_together_or_signed():
    assert whole(["\ud83d\ude00", {"\ud83d": "a\udcff"}]) == ["\U0001f600", {"\ufffd": "a\ufffd"}]
    assert Kept.load(Kept(run_id="r", facts={"a": "\ud83d"}).dump()).facts == {"a": "\ufffd"}


@pytest.mark.parametrize("value", [object(), {1: object()}])
def test_what_json_does_not_hold_is_refused(value):
    with pytest.raises(UsageError, match="JSON"):
        Kept(run_id="r", facts={"a": value}).dump()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no run of callgate"),
        ('{"format": "other"}', "no run of callgate"),
        ('{"format": "tests", "version": 2, "whatever": 1}', "upgrade"),
        ('{"format": "tests", "version": "1", "run_id": "r"}', "damaged at version"),
        ('{"format": "tests", "version": 1, "run_id": "r", "more": 1}', "damaged at more"),
        ('{"format": "tests", "version": 1}', "damaged at run_id"),
    ],
)
def test_what_is_no_state_is_refused_with_what_is_wrong(text, says):
    with pytest.raises(RunStateError, match=says):
        Kept.load(text)


async def test_a_record_of_another_kind_or_another_run_is_refused(runs):
    run = await begun(runs)
    other = type(run.record)(id="other", kind="agent", status="paused", state=run.record.state)
    with pytest.raises(RunStateError, match="'other'"):
        checked_state(Kept, other)
    with pytest.raises(UsageError, match="a workflow's, not an agent's"):
        checked_state(Kept, type(run.record)(id="r", kind="workflow", status="paused", state=run.record.state))
    with pytest.raises(NotFoundError):
        await runs.record("none")


async def test_a_run_is_begun_claimed_and_over_once(runs):
    run = await begun(runs)
    with pytest.raises(ConflictError, match="already"):
        await begun(runs)
    with pytest.raises(ConflictError, match="elsewhere"):
        await runs.claim(run)
    runs.release("r")
    with pytest.raises(ConflictError, match="already"):
        await begun(runs)
    again = Open(run.state, run.record)
    await runs.claim(again)
    with pytest.raises(ConflictError, match="changed elsewhere"):
        await runs.save(run, "paused")
    await runs.save(again, "completed")
    runs.release("r")
    with pytest.raises(ConflictError, match="over"):
        await runs.claim(again)


async def test_a_claim_that_fails_lets_go_of_the_run(runs):
    run = await begun(runs)
    runs.release("r")
    stale = Open(run.state, run.record)
    await runs.save(run, "paused")
    with pytest.raises(ConflictError):
        await runs.claim(stale)
    await runs.claim(run)


async def test_what_was_entered_when_its_task_was_cancelled_is_left_first():
    on, left = asyncio.Event(), []

    async def entering():
        await on.wait()
        return "run"

    async def leave(run, stop):
        left.append((run, type(stop)))

    task = asyncio.ensure_future(entered(entering(), leave))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == [("run", asyncio.CancelledError)]


async def test_what_could_not_be_entered_is_not_left():
    async def entering():
        raise ConflictError("somebody else")

    async def leave(_run, _stop):
        raise AssertionError

    with pytest.raises(ConflictError):
        await entered(entering(), leave)


async def test_a_call_that_is_at_work_elsewhere_is_waited_for_no_longer_than_patience_and_time():
    call = ToolCall("pay", {}, "a")
    elsewhere = Failed(call, "elsewhere", ConflictError("elsewhere"), replayed=True)
    ends = [elsewhere, elsewhere, Succeeded(call, "done")]

    async def ask():
        return ends.pop(0) if len(ends) > 1 else ends[0]

    assert (await known(ask, signal=None, remaining_s=lambda: None)).text == "done"
    ends[:] = [elsewhere]
    assert await known(ask, signal=None, remaining_s=lambda: 0.0) is elsewhere
    with pytest.raises(StillAtWorkError, match="'a'"):
        await known(ask, signal=None, remaining_s=lambda: None, patience_s=0.02)
    controller = AbortController()
    controller.abort("enough")
    with pytest.raises(AbortedError):
        await known(ask, signal=controller.signal, remaining_s=lambda: None)


def test_a_stored_state_is_json_for_other_programs():
    assert json.loads(Kept(run_id="r").dump()) == {"run_id": "r", "format": "tests", "version": 1, "facts": {}}
