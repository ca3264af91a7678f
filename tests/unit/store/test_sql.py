"""The parts of `SQLStore` that need no database: addresses, facts, and who is gone."""

import os
import subprocess
import sys
import time

import pytest

from callgate import UsageError
from callgate.store import KillSwitch, MemoryStore, RunRecord, open_store
from callgate.store.sql.engines import read_url
from callgate.store.sql.identity import born, host, is_gone
from callgate.store.sql.rows import chained, facts_of, read_facts

SWITCH = KillSwitch(scope="gate", by="bob", reason="stop", at=1.5)


@pytest.mark.parametrize(
    ("address", "read"),
    {
        "sqlite:///x.db": "sqlite:///x.db",
        "sqlite+aiosqlite:///x.db": "sqlite:///x.db",
        "postgres://host/name": "postgresql+psycopg://host/name",
        "postgresql://host/name": "postgresql+psycopg://host/name",
        "postgresql+asyncpg://host/name": "postgresql+psycopg://host/name",
    }.items(),
)
def test_an_address_names_its_database_and_the_store_its_driver(address, read):
    assert str(read_url(address)) == read


@pytest.mark.parametrize("address", ["nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(UsageError):
        read_url(address)


async def test_a_place_in_a_configuration_opens_its_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("memory:"), MemoryStore)
    store = open_store("callgate.db")
    await store.aclose()
    assert (tmp_path / "callgate.db").exists()


def test_facts_leave_defaults_out_and_are_read_again():
    assert facts_of(SWITCH) == '{"scope":"gate","by":"bob","reason":"stop","at":1.5}'
    assert read_facts(KillSwitch, facts_of(SWITCH)) == SWITCH
    run = RunRecord(id="r", kind="agent", status="running", state="{}", facts={"a": [1]})
    assert (
        facts_of(run, leave_out=frozenset({"state", "version"}))
        == '{"id":"r","kind":"agent","status":"running","facts":{"a":[1]}}'
    )


def test_a_name_that_is_no_text_is_written_all_the_same():
    switch = KillSwitch(scope="tool:\ud800", by="bob", reason="\x00", at=1.5)
    assert "\\ud800" in facts_of(switch)
    assert read_facts(KillSwitch, facts_of(switch)) == switch


def test_a_chain_depends_on_every_record_before():
    assert chained(chained("0", "a"), "b") != chained(chained("0", "b"), "a")


def test_a_process_is_gone_when_it_ended_or_another_has_its_number():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alive = {"closed": False, "beat_at": time.time(), "host": host(), "pid": child.pid, "born": born(child.pid)}
    assert not is_gone(alive, stale_after_s=60)
    assert is_gone(alive | {"born": born(os.getpid()) + "0"}, stale_after_s=60), "the number was given to another process"
    assert is_gone(alive | {"beat_at": time.time() - 61}, stale_after_s=60)
    assert is_gone(alive | {"closed": True}, stale_after_s=60)
    child.communicate(b"\n")
    assert is_gone(alive, stale_after_s=60)
    assert not is_gone(alive | {"host": "elsewhere"}, stale_after_s=60), "what runs elsewhere is told by its silence only"
