"""One suite over every store: memory, SQLite, PostgreSQL, and what only a database has to keep: chains, crashes, versions."""

import asyncio
import multiprocessing
import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa

from callgate import StoreError, UsageError
from callgate.store import JournalFilter, MemoryStore, SQLStore, open_store
from callgate.store.records import JournalRecord, Refusal, end_claim, start_claim
from callgate.testing import check_store
from tests.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path / 'store.db'}" if request.param == "sqlite" else fresh_database()


class Entry:
    """Be an entry of these tests."""

    kind, caller, reserve = "write", "alice", ()

    def __init__(self, key, number=0, event="started", tool="pay", reserve=(), **facts):
        claim = end_claim(key, number) if event in {"finished", "unknown"} else start_claim(key, number)
        self.claim, self.tool, self.reserve = claim, tool, reserve
        self._record = JournalRecord(
            claim=claim, key=key, number=number, event=event, at=1.0, tool=tool, kind="write", caller="alice", **facts
        )

    def record(self):
        return self._record


async def test_memory_keeps_what_a_store_promises():
    await check_store(MemoryStore)


async def test_a_database_keeps_what_a_store_promises(url):
    await check_store(lambda: SQLStore(url))


async def test_what_was_promised_is_there_when_the_store_is_opened_again(url):
    store = SQLStore(url)
    assert await store.start(Entry("r/c", run_id="r")) is None
    await store.aclose()
    again = SQLStore(url)
    assert [record.event for record in await again.call("r/c")] == ["started"]
    assert await again.start(Entry("r/c")) == Refusal("claimed")
    await again.aclose()


async def test_many_starts_at_once_share_few_transactions_and_none_is_lost(url):
    store = SQLStore(url)
    answers = await asyncio.gather(*[store.start(Entry(f"r/{number}")) for number in range(500)])
    assert answers == [None] * 500
    found, _ = await store.records(JournalFilter(), limit=1000)
    assert {record.key for record in found} == {f"r/{number}" for number in range(500)}
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def test_a_waiter_that_is_cancelled_does_not_undo_its_record(url):
    store = SQLStore(url)
    tasks = [asyncio.ensure_future(store.start(Entry(f"r/{number}"))) for number in range(20)]
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.used("x")
    await store.aclose()
    again = SQLStore(url)
    assert len((await again.records(JournalFilter()))[0]) == 20
    await again.aclose()


async def test_one_claim_that_is_taken_does_not_spoil_the_others_of_its_transaction(url):
    first, second = SQLStore(url), SQLStore(url)
    assert await first.start(Entry("r/5")) is None
    answers = await asyncio.gather(*[second.start(Entry(f"r/{number}")) for number in range(10)])
    assert answers == [Refusal("claimed") if number == 5 else None for number in range(10)]
    assert (await first.verify()).breaks == ()
    await first.aclose()
    await second.aclose()


async def test_work_that_fails_fails_alone(url):
    store = SQLStore(url)

    def fail(_connection):
        raise ZeroDivisionError

    outcomes = await asyncio.gather(
        store.start(Entry("r/1")), store._act(fail), store.start(Entry("r/2")), return_exceptions=True
    )
    assert outcomes[0] is outcomes[2] is None
    assert isinstance(outcomes[1], StoreError)
    await store.aclose()


async def test_a_closed_store_takes_nothing_and_says_so(url):
    store = SQLStore(url)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.start(Entry("r/1"))
    with pytest.raises(StoreError):
        await store.run("r")


def test_an_address_that_is_none_is_refused():
    for address in ("nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(UsageError):
            SQLStore(address)
    assert isinstance(open_store("memory:"), MemoryStore)


def test_a_database_that_cannot_be_opened_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        SQLStore(f"sqlite:///{tmp_path / 'no' / 'folder.db'}")
    (tmp_path / "text.db").write_text("this is no database, but a text that is longer than a header of one hundred bytes" * 3)
    with pytest.raises(StoreError):
        SQLStore(f"sqlite:///{tmp_path / 'text.db'}")


async def test_a_newer_schema_is_refused_and_left_alone(url):
    store = SQLStore(url)
    await store.aclose()
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE callgate_schema SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"9999.*upgrade"):
        SQLStore(url)
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM callgate_schema")).scalar() == "9999"
    engine.dispose()


def _open_and_write(url, barrier, number, queue):
    async def go():
        barrier.wait()
        store = SQLStore(url)
        mine = await store.start(Entry(f"r/{number}"))
        shared = await store.start(Entry("r/shared"))
        used = [await store.start(Entry(f"r/{number}.{each}", reserve=(("n", 5),))) for each in range(5)]
        queue.put((mine, shared, used.count(None)))
        await store.aclose()

    asyncio.run(go())


def test_processes_that_open_one_fresh_database_at_once_all_write_and_share_its_places(url):
    spawn = multiprocessing.get_context("spawn")
    barrier, queue = spawn.Barrier(4), spawn.Queue()
    workers = [spawn.Process(target=_open_and_write, args=(url, barrier, number, queue)) for number in range(4)]
    for worker in workers:
        worker.start()
    answers = [queue.get(timeout=50) for _ in workers]
    for worker in workers:
        worker.join(20)
    assert [mine for mine, _, _ in answers] == [None] * 4
    assert [shared for _, shared, _ in answers].count(None) == 1
    assert sum(used for _, _, used in answers) == 5


_WRITING = """
import asyncio, sys
sys.path[:0] = {path!r}
from callgate.store import SQLStore
from tests.suites.test_stores import Entry
async def go():
    store = SQLStore({url!r})
    number = 0
    while True:
        await asyncio.gather(*[store.start(Entry(f"r/{{number}}.{{each}}")) for each in range(10)])
        await asyncio.gather(*[store.finish(Entry(f"r/{{number}}.{{each}}", event="finished")) for each in range(5)])
        print(number, flush=True)
        number += 1
asyncio.run(go())
"""


async def test_what_was_acknowledged_before_a_kill_is_there_and_what_had_no_end_is_found(url):
    code = _WRITING.format(path=[path for path in sys.path if path], url=url)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    acknowledged = -1
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged >= 20:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    store = SQLStore(url)
    lost = {record.key for record in await store.unfinished(stale_after_s=1000)}
    for number in range(acknowledged + 1):
        assert [len(await store.call(f"r/{number}.{each}")) for each in range(10)] == [2] * 5 + [1] * 5
        assert {f"r/{number}.{each}" for each in range(5, 10)} <= lost
    assert (await store.verify()).breaks == ()
    assert not [key for key in lost if len(await store.call(key)) != 1]
    await store.aclose()


async def test_the_starts_of_a_process_that_lives_are_not_lost(url):
    store, other = SQLStore(url), SQLStore(url)
    await store.start(Entry("r/1"))
    assert await other.unfinished(stale_after_s=1000) == []
    assert len(await other.unfinished(stale_after_s=-1)) == 1, "silent for too long"
    await store.aclose()
    assert [record.key for record in await other.unfinished(stale_after_s=1000)] == ["r/1"]
    await other.aclose()


_FORKING = """
import asyncio, os, sys
sys.path[:0] = {path!r}
from callgate.store import SQLStore
from tests.suites.test_stores import Entry
async def write(key):
    await store.start(Entry(key))
store = SQLStore({url!r})
parent = store.writer
asyncio.run(write("r/parent"))
pid = os.fork()
if pid == 0:
    assert store.writer != parent
    asyncio.run(write("r/child"))
    asyncio.run(store.aclose())
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
asyncio.run(write("r/parent again"))
asyncio.run(store.aclose())
"""


async def test_a_forked_child_writes_under_its_own_name(url):
    code = _FORKING.format(path=[path for path in sys.path if path], url=url)  # a process of its own: this one has many threads
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-W", "ignore", "-c", code], timeout=50, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    store = SQLStore(url)
    assert len((await store.records(JournalFilter()))[0]) == 3
    assert len((await store.verify()).heads) == 2
    assert (await store.verify()).breaks == ()
    await store.aclose()


TAMPERINGS = {
    "a fact": ("UPDATE callgate_journal SET facts = replace(facts, 'pay', 'pax') WHERE seq = 3", "changed"),
    "a column": ("UPDATE callgate_journal SET tool = 'other' WHERE seq = 3", "columns"),
    "a hash": ("UPDATE callgate_journal SET hash = 'x' WHERE seq = 3", "changed"),
    "content": ("UPDATE callgate_journal SET content = 'forged' WHERE seq = 3", "content"),
    "a removal": ("DELETE FROM callgate_journal WHERE seq = 3", "missing"),
    "the newest removed": ("DELETE FROM callgate_journal WHERE seq = 6", "newest"),
    "the writer removed": ("DELETE FROM callgate_writers", "not known"),
    "no facts": ("UPDATE callgate_journal SET facts = '{}' WHERE seq = 3", "changed"),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
async def test_what_was_changed_or_removed_is_found(url, tampering):
    store = SQLStore(url)
    for number in range(6):
        await store.start(Entry(f"r/{number}"))
    assert (await store.verify()).breaks == ()
    statement, problem = TAMPERINGS[tampering]
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.text(statement))
    engine.dispose()
    breaks = (await store.verify()).breaks
    assert breaks
    assert any(problem in each.problem for each in breaks)
    await store.aclose()


async def test_the_chains_are_checked_as_they_are_at_one_moment_while_others_write(url):
    store, other = SQLStore(url), SQLStore(url)

    async def write():
        for number in range(300):
            await other.start(Entry(f"w/{number}"))

    writing = asyncio.ensure_future(write())
    while not writing.done():
        assert (await store.verify()).breaks == ()
    await writing
    await store.aclose()
    await other.aclose()


async def test_a_writer_that_was_taken_for_gone_and_writes_again_is_looked_at_again(url):
    store, other = SQLStore(url), SQLStore(url)
    await other.start(Entry("r/1"))
    await other.finish(Entry("r/1", event="finished"))
    assert await store.unfinished(stale_after_s=-1) == []
    await other.start(Entry("r/2"))
    await other.aclose()
    assert [record.key for record in await store.unfinished(stale_after_s=1000)] == ["r/2"]
    await store.aclose()


async def test_a_swap_of_two_records_is_found(url):
    store = SQLStore(url)
    for number in range(6):
        await store.start(Entry(f"r/{number}"))
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for old, new in ((2, 100), (3, 2), (100, 3)):
            connection.execute(sa.text("UPDATE callgate_journal SET seq = :new WHERE seq = :old"), {"old": old, "new": new})
    engine.dispose()
    assert (await store.verify()).breaks
    await store.aclose()


async def test_memory_lets_the_oldest_go_and_keeps_what_is_open():
    store = MemoryStore(kept=100)
    store.start(Entry("open/1"))
    for number in range(5000):
        store.start(Entry(f"~{number}"))
        store.finish(Entry(f"~{number}", event="finished"))
    assert len(await store.call("open/1")) == 1
    assert await store.call("~1") == ()
    assert len(await store.call("~4999")) == 2
    assert len(store._claims) < 1300


async def test_the_position_of_a_reading_goes_on_behind_records_that_have_gone():
    store = MemoryStore(kept=10)
    for number in range(3000):
        store.finish(Entry(f"~{number}", event="finished"))
    found, position = await store.records(JournalFilter(), limit=5)
    assert len(found) == 5
    further, _ = await store.records(JournalFilter(), limit=1, after=position)
    assert int(further[0].key[1:]) == int(found[-1].key[1:]) + 1
