"""`MemoryStore`: what goes first, what never goes, and threads that come between."""

import threading

from callgate.store import ApprovalRecord, JournalFilter, MemoryStore, RunRecord
from callgate.store.records import JournalRecord, Refusal, digest_of_content, end_claim, start_claim

CONTENT = '{"text":"x"}'


class Entry:
    """Be an entry of these tests."""

    tool_name, tool_kind, subject = "pay", "write", "alice"

    def __init__(self, key, event="started", number=0, reserve=(), **facts):
        self.key, self.event, self.number, self.reserve, self.facts = key, event, number, reserve, facts
        self.ends = start_claim(key, number) if event == "finished" else None
        self.claim = end_claim(key, number) if event == "finished" else start_claim(key, number)

    def record(self):
        return JournalRecord(
            claim=self.claim,
            key=self.key,
            number=self.number,
            event=self.event,
            at=1.0,
            tool=self.tool_name,
            kind=self.tool_kind,
            caller=self.subject,
            **self.facts,
        )


class Refused(Entry):
    """Be an end that stands alone."""

    def __init__(self, key, **facts):
        super().__init__(key, **facts)
        self.event = "finished"


def calls(store, keys):
    for key in keys:
        store.start(Entry(key))
        store.finish(Entry(key, "finished"))


def content(**further):
    return {"content": CONTENT, "content_digest": digest_of_content(CONTENT)} | further


async def test_the_oldest_calls_go_and_what_is_open_stays():
    store = MemoryStore(kept=100)
    store.start(Entry("open/1"))
    calls(store, [f"~{number}" for number in range(5000)])
    assert len(await store.call("open/1")) == 1
    assert await store.call("~1") == ()
    assert len(await store.call("~4999")) == 2
    assert (await store.verify()).records < 1300


async def test_a_start_stays_when_more_calls_are_in_flight_than_are_kept():
    store = MemoryStore(kept=10)
    keys = [f"~{number}" for number in range(1000)]
    assert [store.start(Entry(key)) for key in keys] == [None] * 1000
    assert [len(await store.call(key)) for key in keys] == [1] * 1000
    assert store.start(Entry("~999")).kind == "claimed"
    for key in keys:
        store.finish(Entry(key, "finished"))
    calls(store, [f"~late{number}" for number in range(5000)])
    assert (await store.verify()).records < 2100


async def test_the_records_of_an_active_run_and_of_a_pending_request_stay():
    store = MemoryStore(kept=100)
    await store.create_run(RunRecord(id="active", kind="agent", status="running", state="{}"))
    await store.create_run(RunRecord(id="over", kind="agent", status="completed", state="{}"))
    calls(store, ["active/1", "over/1"])
    approval = ApprovalRecord(
        id="a",
        key="other/1",
        tool="pay",
        kind="write",
        fingerprint="",
        arguments="{}",
        shown="{}",
        digest="",
        caller="alice",
        roles=(),
        reason="",
        rules=(),
        created_at=1.0,
    )
    await store.ask(Entry("other/1", "asked"), approval)
    calls(store, [f"~{number}" for number in range(3000)])
    assert [len(await store.call(key)) for key in ("active/1", "over/1", "other/1")] == [2, 0, 1]
    assert await store.approvals(state="pending") == [approval]


async def test_the_position_of_a_reading_goes_on_behind_records_that_have_gone():
    store = MemoryStore(kept=20)
    calls(store, [f"~{number}" for number in range(3000)])
    found, position = await store.records(JournalFilter(event="finished"), limit=5)
    assert len(found) == 5
    further, _ = await store.records(JournalFilter(event="finished"), limit=1, after=position)
    assert int(further[0].key[1:]) == int(found[-1].key[1:]) + 1


async def test_a_call_is_found_whole_or_not_at_all():
    store = MemoryStore(kept=10)
    for number in range(200):
        calls(store, [f"~{number}"])
        assert {len(await store.call(f"~{each}")) for each in range(number + 1)} <= {0, 2}
        assert (await store.verify()).records <= 10


async def test_what_ended_without_a_start_is_one_record_and_goes_with_the_others():
    store = MemoryStore(kept=10)
    refused = Entry("~no", **content(content_until=1.0))
    assert store.finish(refused)
    assert not store.finish(Entry("~no"))
    assert store.start(Entry("~no")) == Refusal("claimed")
    assert [record.content for record in await store.call("~no")] == [CONTENT]
    assert await store.purge(2.0) == 1
    assert [record.content for record in await store.call("~no")] == [None]
    assert len((await store.records(JournalFilter()))[0]) == 1
    calls(store, [f"~{number}" for number in range(10)])
    assert await store.call("~no") == ()
    assert store.start(Entry("~no")) is None


async def test_a_run_that_goes_on_after_its_content_was_forgotten_keeps_what_comes_then():
    store = MemoryStore()

    def ended(run, number, **further):
        store.start(Entry(f"{run}/{number}"))
        store.finish(Entry(f"{run}/{number}", "finished", **content(run_id=run, **further)))

    ended("r", 1, content_for_run=True)
    ended("r", 2)
    ended("rr", 1, content_for_run=True)
    await store.forget("r")
    ended("r", 3, content_for_run=True)
    found, _ = await store.records(JournalFilter(event="finished"))
    assert {record.key: record.content for record in found} == {"r/1": None, "r/2": CONTENT, "rr/1": CONTENT, "r/3": CONTENT}


async def test_what_a_run_has_read_is_known_as_long_as_its_records_are_kept():
    store = MemoryStore(kept=40)
    await store.create_run(RunRecord(id="active", kind="agent", status="running", state="{}"))
    for run in ("active", "~over"):
        store.start(Entry(f"{run}/1", reserve=(("n", 9),)))
        store.finish(Entry(f"{run}/1", "finished", labels=("untrusted",)))
        assert store.finish(Refused(f"{run}/2", labels=("confidential",)))
        assert await store.labels(run) == {"untrusted", "confidential"}
    for number in range(50):
        calls(store, [f"run{number}/{each}" for each in range(3)])
    assert await store.labels("active") == {"untrusted", "confidential"}
    assert await store.labels("~over") == frozenset()
    assert set(store._of_runs) <= {"active", *(f"run{number}" for number in range(30, 50))}


async def test_of_threads_that_claim_the_same_places_each_place_has_one_winner():
    store, wins = MemoryStore(kept=10_000), []
    barrier = threading.Barrier(8)

    def claim():
        barrier.wait()
        wins.append([number for number in range(2000) if store.start(Entry(f"r/{number}")) is None])

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for each in wins for number in each) == list(range(2000))


async def test_content_is_purged_while_other_threads_write():
    store = MemoryStore(kept=300)
    done = threading.Event()

    def write():
        number = 0
        while not done.is_set():
            store.finish(Entry(f"~{threading.get_ident()}.{number}", "finished", **content(content_until=1.0)))
            number += 1

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            await store.purge(2.0)
            await store.forget("r")
            await store.records(JournalFilter(), limit=10_000)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    await store.purge(2.0)
    assert all(record.content is None for record in (await store.records(JournalFilter(), limit=10_000))[0])


async def test_counters_that_were_not_used_for_long_go_and_one_in_use_stays():
    store = MemoryStore()
    for number in range(100_001):
        store.start(Entry(f"~{number}", reserve=((f"n{number}", 1),)))
        if number % 50_000 == 0:
            store.start(Entry(f"r/{number}", reserve=(("used", 10),)))
    assert (await store.used("n0"), await store.used("used"), await store.used("n100000")) == (0, 3, 1)
    assert store.start(Entry("r/last", reserve=(("n100000", 1),))) == Refusal("used_up", "n100000")
