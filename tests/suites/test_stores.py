"""One suite over every store: memory, SQLite, PostgreSQL, and what only a database has to keep: chains, crashes, versions."""

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from callgate import StoreError
from callgate.store import ApprovalRecord, Grant, JournalFilter, KillSwitch, MemoryStore, RunRecord, SQLStore
from callgate.store.records import JournalRecord, Refusal, call_key, digest_of_content, end_claim, start_claim
from callgate.store.sql import reading
from callgate.store.sql.engines import _MIGRATIONS
from callgate.store.sql.rows import FIRST_HASH, chained, facts_of
from callgate.store.sql.spilling import SQLSpill
from callgate.store.sql.statements import JOURNAL_LOCK
from callgate.store.sql.tables import METADATA
from callgate.testing import check_store
from tests.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path / 'store.db'}" if request.param == "sqlite" else fresh_database()


APPROVAL = ApprovalRecord(
    id="a",
    key="r/a",
    tool="pay",
    kind="write",
    fingerprint="f",
    arguments="{}",
    shown="{}",
    digest="d",
    caller="alice",
    roles=(),
    reason="",
    rules=(),
    created_at=1.0,
)


class Entry:
    """Be an entry of these tests."""

    tool_kind, subject, reserve = "write", "alice", ()

    def __init__(self, key, number=0, event="started", tool="pay", reserve=(), **facts):
        claim = end_claim(key, number) if event in {"finished", "unknown"} else start_claim(key, number)
        self.claim, self.tool_name, self.reserve = claim, tool, reserve
        facts = {"at": 1.0, "caller": "alice"} | facts
        self._record = JournalRecord(claim=claim, key=key, number=number, event=event, tool=tool, kind="write", **facts)

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


async def test_what_a_database_cannot_hold_fails_alone(url):
    store = SQLStore(url)
    entries = [Entry(f"r/{number}", caller="al\ud800ice" if number == 3 else "alice") for number in range(9)]
    outcomes = await asyncio.gather(*[store.start(entry) for entry in entries], return_exceptions=True)
    assert [number for number, outcome in enumerate(outcomes) if outcome is not None] == [3]
    assert isinstance(outcomes[3], StoreError)
    assert (await store.verify()).breaks == ()
    await store.aclose()


HOSTILE = {
    "a zero character": "al\x00ice",
    "half a pair": "al\ud800ice",
    "a call's id that fits in no index": "".join(digest_of_content(f"{number}") for number in range(1000)),
    "what the quoting uses": "../%2F#0000!",
    "right to left": "\u202eecila",
    "a sign beyond the first plane": "\U0001f600\u0301\uffff",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_are_kept_or_refused_alone(url, name):
    store = SQLStore(url)
    text = HOSTILE[name]
    hostile = [Entry(call_key("r", text)), Entry("r/1", caller=text), Entry("r/2", tool=text), Entry("r/3", thread_id=text)]
    harmless = [Entry(f"s/{number}") for number in range(20)]
    outcomes = await asyncio.gather(*[store.start(entry) for entry in hostile + harmless], return_exceptions=True)
    assert outcomes[4:] == [None] * 20
    for entry, outcome in zip(hostile, outcomes[:4], strict=True):
        assert outcome is None or isinstance(outcome, StoreError)
        expected = (entry.record(),) if outcome is None else ()
        assert await store.call(entry.record().key) == expected
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def test_results_of_ten_megabytes_are_kept_beside_small_ones(url):
    store = SQLStore(url)
    content = "\u00e9" * 5_000_000
    facts = {"content": content, "content_digest": digest_of_content(content)}
    entries = [Entry(f"r/{number}", event="finished", **(facts if number < 4 else {})) for number in range(70)]
    assert await asyncio.gather(*[store.finish(entry) for entry in entries]) == [True] * 70
    assert (await store.call("r/3"))[0].content == content
    found, _ = await store.records(JournalFilter())
    assert [record.key for record in found] == [f"r/{number}" for number in range(70)]
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def test_a_batch_of_any_size_is_written_in_its_order(url):
    store = SQLStore(url)
    written = []
    for size in (1, 2, 7, 8, 9, 31, 32, 33, 41, 73, 130):
        entries = [Entry(f"r/{size}.{number}") for number in range(size)]
        assert await asyncio.gather(*[store.start(entry) for entry in entries]) == [None] * size
        written += [entry.claim for entry in entries]
    found, _ = await store.records(JournalFilter(), limit=1000)
    assert [record.claim for record in found] == written
    assert (await store.verify()).breaks == ()
    await store.aclose()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_that_breaks_down_tells_everybody_who_waits(url, monkeypatch):
    store = SQLStore(url)
    assert await store.start(Entry("r/1")) is None

    def break_down(_works):
        raise MemoryError

    monkeypatch.setattr(store._thread, "_write", break_down)
    works = [store.start(Entry(f"r/{number}")) for number in range(2, 9)]
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    with pytest.raises(StoreError):
        await store.start(Entry("r/9"))
    with pytest.raises(StoreError):
        store.spill.put("text", None)
    assert len(await store.call("r/1")) == 1
    await store.aclose()


async def test_much_that_fails_lets_the_rest_through(url):
    store = SQLStore(url)
    grant = Grant(id="g", tool="pay", granted_by="bob", created_at=1.0)
    await store.add_grant(grant)
    works = [store.add_grant(grant) if number % 2 else store.start(Entry(f"r/{number}")) for number in range(100)]
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    assert outcomes[::2] == [None] * 50
    assert all(isinstance(outcome, StoreError) for outcome in outcomes[1::2])
    await store.aclose()


async def test_stores_that_claim_the_same_places_in_opposite_order_answer_every_claim(url):
    first, second = SQLStore(url), SQLStore(url)
    for turn in range(5):
        ascending = [first.start(Entry(f"r/{turn}.{number}")) for number in range(40)]
        descending = [second.start(Entry(f"r/{turn}.{number}")) for number in reversed(range(40))]
        answers = await asyncio.gather(*ascending, *descending)
        assert [{one, other} for one, other in zip(answers[:40], reversed(answers[40:]), strict=True)] == [
            {None, Refusal("claimed")}
        ] * 40
    assert (await first.verify()).breaks == ()
    await first.aclose()
    await second.aclose()


def _commits_and_then(url, *, is_committed, fault):
    """Make a store whose next commit fails, though it may have been done."""
    store = SQLStore(url)
    dialect = store._engines.writing.dialect
    error = dialect.dbapi.OperationalError("server closed the connection unexpectedly")

    def do_commit(connection):
        del dialect.do_commit
        if is_committed:
            connection.commit()
        fault(dialect, connection)
        raise error

    dialect.do_commit = do_commit
    return store


def _is_lost(dialect, connection):
    if dialect.name == "postgresql":
        connection.dbapi_connection.close()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_commit_whose_answer_was_lost_is_done_once(url, is_committed):
    store = _commits_and_then(url, is_committed=is_committed, fault=_is_lost)
    answers = await asyncio.gather(*[store.start(Entry(f"r/{number}")) for number in range(5)], return_exceptions=True)
    if is_committed or url.startswith("postgresql"):
        assert answers == [None] * 5
    else:  # a file's fault is no lost connection: nothing was written, and whoever asked is told
        assert all(isinstance(answer, StoreError) for answer in answers)
        assert (await store.records(JournalFilter()))[0] == []
    assert await store.start(Entry("r/next")) is None
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def test_a_commit_of_which_nobody_can_tell_is_a_store_error_and_the_store_goes_on():
    url = fresh_database()

    def is_lost_for_good(dialect, connection):
        connection.dbapi_connection.close()

        def connect(*_arguments, **_keywords):
            raise dialect.dbapi.OperationalError("connection refused")

        dialect.connect = connect

    store = _commits_and_then(url, is_committed=True, fault=is_lost_for_good)
    with pytest.raises(StoreError, match="the journal will tell"):
        await store.start(Entry("r/1"))
    with pytest.raises(StoreError, match="nothing was recorded"):
        await store.start(Entry("r/2"))
    del store._engines.writing.dialect.connect
    assert await store.start(Entry("r/2")) is None
    assert await store.start(Entry("r/1")) == Refusal("claimed"), "it had been written after all"
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def test_a_connection_that_the_server_has_ended_is_opened_anew():
    url = fresh_database()
    store = SQLStore(url)
    assert await store.start(Entry("r/1")) is None
    with psycopg.connect(url, autocommit=True) as other:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
        other.execute(ended)
        assert await store.start(Entry("r/2")) is None
        other.execute(ended)
        assert len((await store.records(JournalFilter()))[0]) == 2
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def test_a_database_that_broke_is_a_store_error_for_whoever_asked(url):
    store = SQLStore(url)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE callgate_journal RENAME TO elsewhere"))
    answers = await asyncio.gather(*[store.start(Entry(f"r/{number}")) for number in range(3)], return_exceptions=True)
    assert all(isinstance(answer, StoreError) for answer in answers)
    with pytest.raises(StoreError):
        await store.call("r/1")
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO callgate_journal"))
    engine.dispose()
    assert await store.start(Entry("r/1")) is None
    assert (await store.verify()).breaks == ()
    await store.aclose()


async def _waits_for_the_journal(connection):
    """Wait until somebody waits for the lock that this connection has."""
    waiting = "locktype = 'advisory' AND NOT granted AND datname = current_database()"
    wanted = f"SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database WHERE {waiting}"
    async with asyncio.timeout(20):
        while not connection.execute(wanted).fetchone()[0]:
            await asyncio.sleep(0.01)


async def test_a_record_that_is_on_its_way_is_not_skipped():
    url = fresh_database()
    store = SQLStore(url)
    with psycopg.connect(url) as slow:
        slow.execute("SELECT pg_advisory_xact_lock_shared(%s)", (JOURNAL_LOCK,))
        slow.execute(
            "INSERT INTO callgate_journal (writer, seq, claim, event, at, tool, caller, facts, hash, content_for_run)"
            " SELECT 'other', 1, 's/1#0000', event, at, tool, caller, replace(facts, 'r/1', 's/1'), hash, false FROM"
            " (VALUES ('started', 1.0, 'pay', 'alice', %s, 'x')) AS row (event, at, tool, caller, facts, hash)",
            (facts_of(Entry("r/1").record()),),
        )
        assert await store.start(Entry("r/2")) is None, "writers do not wait for each other"
        reading = asyncio.ensure_future(store.records(JournalFilter()))
        await _waits_for_the_journal(slow)
        slow.commit()
        found, position = await reading
    assert [record.key for record in found] == ["s/1", "r/2"]
    assert await store.records(JournalFilter(), after=position) == ([], position)
    await store.aclose()


async def test_a_switch_waits_for_the_starts_that_are_on_their_way():
    url = fresh_database()
    store = SQLStore(url)
    with psycopg.connect(url) as slow:
        slow.execute("SELECT pg_advisory_xact_lock_shared(%s)", (JOURNAL_LOCK,))
        throwing = asyncio.ensure_future(store.switch_off(KillSwitch(scope="gate", by="bob", reason="stop", at=1.0)))
        await _waits_for_the_journal(slow)
        assert not throwing.done()
        slow.commit()
    await throwing
    assert await store.start(Entry("r/1")) == Refusal("switched_off", "stop")
    await store.aclose()


async def test_reading_on_with_a_filter_does_not_look_again_at_what_did_not_fit(url):
    store = SQLStore(url)
    for number in range(10):
        await store.start(Entry(f"r/{number}", tool="pay" if number < 3 else "other"))
    found, position = await store.records(JournalFilter(tool="pay"))
    _, everything = await store.records(JournalFilter())
    assert (len(found), position) == (3, everything)
    pages, position = [], 0
    for _ in range(4):
        page, position = await store.records(JournalFilter(tool="other"), limit=2, after=position)
        pages += [record.key for record in page]
    assert pages == [f"r/{number}" for number in range(3, 10)]
    await store.aclose()


async def test_records_are_chosen_by_their_time(url):
    store = SQLStore(url)
    for number in range(4):
        await store.start(Entry(f"r/{number}", at=float(number)))
    found, _ = await store.records(JournalFilter(since=1.0, until=3.0))
    assert [record.at for record in found] == [1.0, 2.0]
    await store.aclose()


async def test_content_that_is_due_is_found_by_its_index_and_goes_in_portions(url):
    store = SQLStore(url)
    content = {"content": "{}", "content_digest": digest_of_content("{}")}
    entries = [Entry(f"r/{number}", **content, content_until=float(number)) for number in range(2500)]
    await asyncio.gather(*[store.start(entry) for entry in [*entries, Entry("r/ever", **content)]])
    assert await store.purge(2100.0) == 2101
    assert await store.purge(2100.0) == 0
    assert await store.purge(1e9) == 399
    assert (await store.call("r/ever"))[0].content == "{}"
    assert (await store.verify()).breaks == ()
    await store.aclose()


def test_the_index_of_content_that_is_due_serves_its_purge(tmp_path):
    store = SQLStore(f"sqlite:///{tmp_path / 'store.db'}")
    with store._engines.reading.connect() as connection:
        statements = []
        sa.event.listen(connection, "before_cursor_execute", lambda *seen: statements.append(seen[2:4]))
        reading.purge(connection, 1.0)
        statement, parameters = statements[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert any("callgate_journal_due" in row[3] for row in plan)
    asyncio.run(store.aclose())


async def test_chains_of_several_writers_are_checked_over_many_pages(url):
    first, second = SQLStore(url), SQLStore(url)
    for part in range(3):
        starts = [(first, second)[number % 2].start(Entry(f"r/{part}.{number}")) for number in range(900)]
        assert await asyncio.gather(*starts) == [None] * 900
    verified = await first.verify()
    assert (verified.records, verified.breaks) == (2700, ())
    assert {writer: seq for writer, (seq, _) in verified.heads.items()} == {first.writer: 1350, second.writer: 1350}
    await first.aclose()
    await second.aclose()


async def test_an_output_grows_old_and_the_oldest_make_room(url, monkeypatch):
    store = SQLStore(url)
    spill = SQLSpill(store._do, store._see, max_total_bytes=100, max_age_s=1000)
    handles = [spill.put(f"{number}" * 40, "t") for number in range(3)]
    assert [spill.read(handle, 0, 10, "t") is not None for handle in handles] == [False, True, True]
    assert spill.put("x" * 101, "t") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1001)
    assert [spill.read(handle, 0, 10, "t") for handle in handles] == [None] * 3
    assert spill.put("young", "t") is not None
    assert await store._read(lambda connection: connection.execute(sa.text("SELECT count(*) FROM callgate_spills")).scalar()) == 1
    await store.aclose()


async def test_a_file_that_was_removed_or_replaced_takes_nothing_more(tmp_path):
    file = tmp_path / "store.db"
    store = SQLStore(f"sqlite:///{file}")
    assert await store.start(Entry("r/1")) is None
    for part in tmp_path.iterdir():
        part.rename(part.with_name(f"moved.{part.name}"))
    for ask in (lambda: store.start(Entry("r/2")), lambda: store.call("r/1")):
        with pytest.raises(StoreError, match="removed or replaced"):
            await ask()
    assert not file.exists()
    other = SQLStore(f"sqlite:///{file}")
    assert await other.start(Entry("r/2")) is None
    with pytest.raises(StoreError):
        await store.start(Entry("r/2"))
    await other.aclose()
    file.unlink()
    (tmp_path / "moved.store.db").rename(file)
    assert await store.start(Entry("r/2")) is None, "it is back"
    file.unlink()
    await store.aclose()


async def test_a_process_that_was_stopped_in_a_transaction_does_not_keep_its_locks():
    store = SQLStore(f"{fresh_database()}&keepalives_idle=7")

    def settings(connection):
        given = connection.connection.dbapi_connection.info.get_parameters()
        return connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar(), given["keepalives_idle"]

    assert await store._act(settings) == ("1min", "7")
    assert await store._read(settings) == ("1min", "7")
    await store.aclose()


def _make_first_schema(url, record):
    """Make a database as the first schema had it, with a record, its writer and an output."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    facts = facts_of(record, leave_out=frozenset({"content", "content_for_run", "content_until"}))
    row = {name: getattr(record, name) for name in ("claim", "event", "at", "tool", "caller", "content", "content_until")}
    row |= {"writer": "w_old", "seq": 1, "facts": facts, "hash": chained(FIRST_HASH, facts), "content_for_run": False}
    writer = {"writer": "w_old", "host": "elsewhere", "pid": 1, "born": "", "beat_at": 1.0, "closed": True, "settled": False}
    spill = {"handle": "out_old", "size": 4, "data": b"text"}
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        tables = sa.MetaData()
        tables.reflect(connection)
        connection.execute(tables.tables["callgate_journal"].insert().values(row))
        connection.execute(tables.tables["callgate_writers"].insert().values(writer | {"last_seq": 1, "last_hash": row["hash"]}))
        connection.execute(tables.tables["callgate_spills"].insert().values(spill))
    engine.dispose()


async def test_a_database_of_the_first_schema_is_brought_forward_with_what_it_holds(url):
    content = {"content": "{}", "content_digest": digest_of_content("{}"), "content_until": 5.0}
    old = Entry("r/1", **content).record()
    _make_first_schema(url, old)
    store = SQLStore(url)
    assert await store.call("r/1") == (old,)
    assert await store.unfinished(stale_after_s=60) == [old]
    assert await store.start(Entry("r/1")) == Refusal("claimed")
    assert await store.start(Entry("r/2")) is None
    verified = await store.verify()
    assert (verified.records, verified.breaks) == (2, ())
    assert await store.purge(6.0) == 1
    assert store.spill.read("out_old", 0, 10, None) is None, "its age is not known: it counts as old"
    assert store.spill.put("text", None) is not None
    await store.aclose()


async def test_the_tables_are_what_the_migrations_make(url):
    store = SQLStore(url)
    with store._engines.reading.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "callgate_schema"})
        assert compare_metadata(context, METADATA) == []
    await store.aclose()


async def test_a_closed_store_takes_nothing_and_says_so(url):
    store = SQLStore(url)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.start(Entry("r/1"))
    with pytest.raises(StoreError):
        await store.run("r")


def test_a_database_that_cannot_be_opened_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match=r"the store '.*folder\.db' cannot be opened"):
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


def _write_with_others(url, barrier, number, queue):
    async def go():
        barrier.wait()
        store = SQLStore(url)
        mine = await store.start(Entry(f"r/{number}"))
        shared = await store.start(Entry("r/shared"))
        used = [await store.start(Entry(f"r/{number}.{each}", reserve=(("n", 5), (f"{number}", 9)))) for each in range(5)]
        decided = await store.decide(replace(APPROVAL, state="approved", decided_by=f"{number}"))
        granted = [await store.use_grant("g", 1.0) for _ in range(3)]
        saved = await store.save_run(RunRecord(id="r", kind="agent", status="paused", state=f"{number}"))
        queue.put((mine, shared, used.count(None), decided, sum(granted), saved))
        await store.aclose()

    asyncio.run(go())


async def test_processes_that_use_one_database_at_once_share_places_decisions_grants_and_runs(url):
    store = SQLStore(url)
    assert await store.ask(Entry("r/a", event="asked"), APPROVAL)
    await store.add_grant(Grant(id="g", tool="pay", granted_by="bob", created_at=1.0, max_uses=4))
    assert await store.create_run(RunRecord(id="r", kind="agent", status="running", state="{}"))
    spawn = multiprocessing.get_context("spawn")
    barrier, queue = spawn.Barrier(4), spawn.Queue()
    workers = [spawn.Process(target=_write_with_others, args=(url, barrier, number, queue)) for number in range(4)]
    for worker in workers:
        worker.start()
    answers = [await asyncio.to_thread(queue.get, timeout=50) for _ in workers]
    for worker in workers:
        worker.join(20)
    await store.aclose()
    mine, shared, used, decided, granted, saved = zip(*answers, strict=True)
    assert mine == (None,) * 4
    assert shared.count(None) == 1
    assert (sum(used), sum(decided), sum(granted), sum(saved)) == (5, 1, 4, 1)


def _open(url, barrier, queue):
    barrier.wait()
    store = SQLStore(url)
    queue.put(store.writer)
    asyncio.run(store.aclose())


def test_processes_that_open_one_fresh_database_at_once_all_find_it_whole(url):
    spawn = multiprocessing.get_context("spawn")
    barrier, queue = spawn.Barrier(4), spawn.Queue()
    workers = [spawn.Process(target=_open, args=(url, barrier, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    assert len({queue.get(timeout=50) for _ in workers}) == 4
    for worker in workers:
        worker.join(20)
    assert [worker.exitcode for worker in workers] == [0] * 4


_ENDING = """
import asyncio, sys
sys.path[:0] = {path!r}
from callgate.store import SQLStore
from tests.suites.test_stores import Entry
async def go():
    for number in range(50):
        store.start(Entry(f"r/{{number}}"))
store = SQLStore({url!r})
asyncio.run(go())
"""


async def test_what_is_on_its_way_when_a_program_ends_is_written_and_its_writer_is_closed(url):
    code = _ENDING.format(path=[path for path in sys.path if path], url=url)
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], timeout=50, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    store = SQLStore(url)
    assert len(await store.unfinished(stale_after_s=1e9)) == 50
    await store.aclose()


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
parent, spill = store.writer, store.spill
asyncio.run(write("r/parent"))
pid = os.fork()
if pid == 0:
    assert spill.read(spill.put("child's", None), 0, 100, None).text == "child's"
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
    "facts that are none": ("UPDATE callgate_journal SET facts = 'none', hash = :none WHERE seq = 1", "cannot be read"),
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
        connection.execute(sa.text(statement), {"none": chained(FIRST_HASH, "none")} if ":none" in statement else {})
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
