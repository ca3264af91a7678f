"""What every store has to keep, as a suite for own ones."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from callgate.store import ApprovalRecord, Grant, JournalFilter, JournalRecord, KillSwitch, RunRecord, Store
from callgate.store.records import CallEvent, Refusal, call_key, digest_of_content, end_claim, start_claim

__all__ = ("check_store",)

T = TypeVar("T")
_NOW = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class _Entry:
    """Be an entry of the suite."""

    written: JournalRecord
    reserve: tuple[tuple[str, int], ...] = ()

    @property
    def claim(self) -> str:
        return self.written.claim

    @property
    def ends(self) -> str | None:
        return self.claim[:-1] if self.claim.endswith("!") else None

    @property
    def tool_name(self) -> str:
        return self.written.tool

    @property
    def tool_kind(self) -> str:
        return self.written.kind

    @property
    def subject(self) -> str:
        return self.written.caller

    def record(self) -> JournalRecord:
        return self.written


async def check_store(make: Callable[[], Store]) -> None:
    """Check a store; `make` gives one that is empty, and is called once.

    Raises:
        AssertionError: it does not keep what `Store` promises.
    """
    store = make()
    try:
        for check in (_check_claims, _check_journal, _check_counters, _check_switches, _check_content):
            await check(store)
        for check in (_check_approvals, _check_grants, _check_runs, _check_profiles, _check_spill):
            await check(store)
    finally:
        await store.aclose()


async def _now(answer: T | Awaitable[T]) -> T:
    return cast("T", await answer if isinstance(answer, Awaitable) else answer)


def _record(call_id: str, number: int = 0, event: CallEvent = "started", **further: object) -> JournalRecord:
    key = call_key("run 1", call_id)
    end = event in {"finished", "unknown"}
    facts = JournalRecord(
        claim=end_claim(key, number) if end else start_claim(key, number),
        key=key,
        number=number,
        event=event,
        at=_NOW,
        tool="refund",
        kind="write",
        caller="alice",
        run_id="run 1",
        call_id=call_id,
        status="succeeded" if end else None,
    )
    return replace(facts, **further)  # type: ignore[arg-type]  # the suite's own fields


async def _check_claims(store: Store) -> None:
    first, *others = await asyncio.gather(*[_now(store.start(_Entry(_record("once")))) for _ in range(8)])
    taken = [answer for answer in (first, *others) if answer is None]
    assert len(taken) == 1, "of many starts that claim one place, exactly one is recorded"
    assert all(answer == Refusal("claimed") for answer in (first, *others) if answer is not None)
    ends = await asyncio.gather(*[_now(store.finish(_Entry(_record("once", event="finished")))) for _ in range(8)])
    assert sum(ends) == 1, "a start ends once"


async def _check_journal(store: Store) -> None:
    assert await _now(store.start(_Entry(_record("read")))) is None
    assert await _now(store.finish(_Entry(_record("read", event="finished", labels=("untrusted",)))))
    events = [record.event for record in await store.call(call_key("run 1", "read"))]
    assert events == ["started", "finished"], "a call's records come in the order of their places"
    assert await store.call(call_key("run 1", "never")) == ()
    assert await store.labels("run 1") == {"untrusted"}
    assert await store.labels("run 2") == frozenset()
    found, position = await store.records(JournalFilter(run_id="run 1", event="finished"), limit=1)
    more, _ = await store.records(JournalFilter(run_id="run 1", event="finished"), after=position)
    assert [record.call_id for record in (*found, *more)] == ["once", "read"]
    assert (await store.records(JournalFilter(caller="bob")))[0] == []
    assert (await store.verify()).breaks == ()


async def _check_counters(store: Store) -> None:
    both = (("a", 3), ("b", 10))
    starts = [_Entry(_record(f"counted{number}"), both) for number in range(6)]
    answers = await asyncio.gather(*[_now(store.start(entry)) for entry in starts])
    assert [answer for answer in answers if answer is not None] == [Refusal("used_up", "a")] * 3, "exactly so many get through"
    assert (await store.used("a"), await store.used("b")) == (3, 3), "a start that is refused takes no use of any counter"
    assert await _now(store.start(_Entry(_record("none"), (("c", 0),)))) == Refusal("used_up", "c")


async def _check_switches(store: Store) -> None:
    for number, scope in enumerate(("gate", "tool:refund", "caller:alice")):
        await store.switch_off(KillSwitch(scope=scope, by="bob", reason="stop", at=_NOW, spares_reads=True))
        refused = await _now(store.start(_Entry(_record(f"off{number}"))))
        assert refused == Refusal("switched_off", "stop"), f"a start after {scope} was switched off is refused"
        assert await _now(store.start(_Entry(_record(f"read{number}", kind="read")))) is None, "reads are spared"
        assert [switch.scope for switch in await store.switches()] == [scope]
        assert await store.switch_on(scope)
        assert not await store.switch_on(scope)
    await store.switch_off(KillSwitch(scope="tool:other", by="bob", reason="stop", at=_NOW))
    assert await _now(store.start(_Entry(_record("on")))) is None
    await store.switch_on("tool:other")


async def _check_content(store: Store) -> None:
    kept: dict[str, Any] = {"content": '{"text":"x"}', "content_digest": digest_of_content('{"text":"x"}')}
    cases: dict[str, dict[str, Any]] = {"run": {"content_for_run": True}, "host": {}, "late": {"content_until": _NOW + 10}}
    for call_id, further in cases.items():
        await _now(store.start(_Entry(_record(call_id, event="finished", **{**kept, **further}))))
    await store.forget("run 1")
    assert await store.purge(_NOW + 5) == 0
    assert await store.purge(_NOW + 10) == 1
    contents = {
        call_id: (await store.records(JournalFilter(key=call_key("run 1", call_id))))[0][0].content
        for call_id in ("run", "host", "late")
    }
    assert contents == {"run": None, "host": '{"text":"x"}', "late": None}
    assert (await store.verify()).breaks == (), "to forget content breaks no chain"


def _approval(name: str) -> ApprovalRecord:
    return ApprovalRecord(
        id=name,
        key=call_key("run 1", name),
        tool="refund",
        kind="write",
        fingerprint="f",
        arguments="{}",
        shown="{}",
        digest="d",
        caller="alice",
        roles=("agent",),
        reason="large",
        rules=("r",),
        created_at=_NOW,
        run_id="run 1",
    )


async def _check_approvals(store: Store) -> None:
    asked = _Entry(_record("apr", event="asked", approval_id="apr"))
    assert await store.ask(asked, _approval("apr"))
    assert not await store.ask(asked, replace(_approval("apr"), id="other")), "a request takes its place once"
    assert await store.approval("other") is None
    assert await store.approval("apr") == _approval("apr") == await store.approval_of(call_key("run 1", "apr"))
    decided = [replace(_approval("apr"), state="approved", decided_by=f"bob{number}") for number in range(6)]
    wins = await asyncio.gather(*[store.decide(each) for each in decided])
    assert sum(wins) == 1, "of many decisions exactly one holds"
    stored = await store.approval("apr")
    assert stored == decided[wins.index(True)]
    assert await store.approvals(state="pending") == []
    assert await store.approvals(state="approved", run_id="run 1") == [stored]
    assert not await store.decide(replace(_approval("none"), state="denied"))


async def _check_grants(store: Store) -> None:
    grant = Grant(id="g", tool="refund", granted_by="bob", created_at=_NOW, max_uses=2, expires_at=_NOW + 10)
    await store.add_grant(grant)
    uses = await asyncio.gather(*[store.use_grant("g", _NOW) for _ in range(5)])
    assert sum(uses) == 2, "a grant is used as often as it may be"
    assert await store.grants(active_at=_NOW) == []
    assert await store.grants() == [replace(grant, uses=2)]
    await store.add_grant(replace(grant, id="h", max_uses=None))
    assert [each.id for each in await store.grants(active_at=_NOW)] == ["h"]
    assert not await store.use_grant("h", _NOW + 10), "an expired grant is none"
    assert await store.revoke_grant("h", "eve", _NOW + 1)
    assert not await store.revoke_grant("h", "eve", _NOW + 1)
    assert not await store.use_grant("h", _NOW + 1)


async def _check_runs(store: Store) -> None:
    run = RunRecord(id="r", kind="agent", status="running", state="{}", owner=store.writer, thread_id="t", facts={"a": 1})
    assert await store.create_run(run)
    assert not await store.create_run(run)
    saved = await asyncio.gather(*[store.save_run(replace(run, status="paused", state=f"{n}")) for n in range(6)])
    assert sum(saved) == 1, "of many changes of one version exactly one is stored"
    stored = await store.run("r")
    assert stored is not None
    assert (stored.status, stored.version, stored.state) == ("paused", 1, f"{saved.index(True)}")
    assert [each.id for each in await store.runs(status="paused", thread_id="t")] == ["r"]
    assert await store.runs(status="running") == []
    assert await store.run("none") is None
    assert not await store.writer_gone(store.writer, stale_after_s=60)
    assert await store.writer_gone("nobody", stale_after_s=60)


async def _check_profiles(store: Store) -> None:
    await store.put_profile("p", "1")
    await store.put_profile("p", "2")
    assert (await store.profile("p"), await store.profiles()) == ("2", {"p": "2"})
    assert await store.delete_profile("p")
    assert not await store.delete_profile("p")
    assert await store.profile("p") is None


async def _check_spill(store: Store) -> None:
    handle = store.spill.put("äb" * 10, "t")
    assert handle is not None
    page = store.spill.read(handle, 0, 4, "t")
    assert page is not None
    assert (page.text, page.total_bytes) == ("äb", 30)
    assert store.spill.read(handle, 0, 4, "other") is None
    assert store.spill.read("guessed", 0, 4, "t") is None
