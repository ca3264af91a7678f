"""Runs of a workflow whose process is killed at random moments: what they deliver, and no write twice."""

import asyncio
import multiprocessing
import os
import random
import time

import pytest

from callgate.workflow.states import WorkflowState
from tests.postgres import fresh_database
from tests.suites import killed_workflows
from tests.suites.killed_runs import marks
from tests.suites.killed_workflows import VALUE, WRITES, carry_on, gate_of, run_in_child

RUNS = 15 if os.environ.get("CALLGATE_QUICK") else 50  # on each of the two databases, with and without idempotent writes


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else fresh_database()


@pytest.fixture(scope="module")
def forkserver():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([killed_workflows.__name__])
    return context


def run_child(forkserver, where, folder, run_id, seconds):
    url, idempotent = where
    process = forkserver.Process(target=run_in_child, args=(url, str(folder), run_id, idempotent))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode


@pytest.mark.timeout(600)
@pytest.mark.parametrize("idempotent", [True, False])
def test_runs_that_are_killed_deliver_what_an_undisturbed_run_does_and_no_write_happens_twice(
    forkserver, url, tmp_path, idempotent
):
    where = url, idempotent
    folders = [tmp_path / f"r{number}" for number in range(RUNS)]
    for folder in [*folders, tmp_path / "warm"]:
        folder.mkdir()
    for number in range(2):
        begun = time.monotonic()
        assert run_child(forkserver, where, tmp_path / "warm", f"warm{number}", 60) == 0
    longest_s = time.monotonic() - begun
    for number, folder in enumerate(folders):
        for _ in range(1 + number % 3):
            run_child(forkserver, where, folder, f"run{number}", random.uniform(0, longest_s))

    async def recover():
        same = 0
        for number, folder in enumerate(folders):
            gate = gate_of(url, str(folder), idempotent=idempotent)
            stored = await gate.store.run(f"run{number}")
            if stored is None or stored.status != "completed":
                await carry_on(gate, f"run{number}")
            state = WorkflowState.load((await gate.store.run(f"run{number}")).state)
            same += state.value == VALUE
            check(state.value, folder)
            assert state.value == VALUE or not idempotent
            assert [name for _, name in state.path] == ["read", "settle", "give back"] * 3, "each node's patch once"
            await gate.aclose()
        return same

    assert asyncio.run(recover()) > RUNS // 2


def check(value, folder):
    """Check what was delivered against what happened: the same as undisturbed, but for writes whose end nobody knows."""
    assert len(value) == len(VALUE)
    for told, expected in zip(value, VALUE, strict=True):
        assert told == expected or told.startswith("unknown ")
    for name in WRITES:
        count = marks(folder, name)
        assert count <= 1
        known = f"{'paid' if name.startswith('pay') else 'refunded'} {name[-1]}" in value
        assert count == 1 if known else f"unknown {name}" in value
