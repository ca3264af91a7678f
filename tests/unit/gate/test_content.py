"""What the journal keeps of arguments and results, and what is taken out of it before."""

import json

import pytest

from callgate import Caller, Gate, ImageBlock, KeepContent, ToolAnswer, ToolCall, ToolRegistry, UsageError, tool
from callgate.policy import AllowAll
from callgate.store import JournalFilter, MemoryStore, SQLStore
from callgate.testing import ManualClock

ALICE = Caller("alice")
SECRET = "4111-1111"


@tool(kind="read")
async def card(number: str, owner: dict[str, str]) -> dict[str, object]:
    return {"number": number, "owner": owner, "items": [{"number": number}, {"number": number}]}


@tool(kind="read")
async def told(number: str) -> ToolAnswer[dict[str, str]]:
    return ToolAnswer({"number": number}, text=f"the number is {number}", blocks=(ImageBlock(b"png", "image/png"),))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else SQLStore(f"sqlite:///{tmp_path / 's.db'}")
    yield made
    await made.aclose()


def gate_of(store, content=None, clock=None):
    return Gate(ToolRegistry([card, told]), policy=AllowAll(), store=store, content=content, clock=clock or ManualClock())


async def kept(store, run_id=None):
    records, _ = await store.records(JournalFilter(run_id=run_id))
    return [None if record.content is None else json.loads(record.content) for record in records]


CALL = ToolCall("card", {"number": SECRET, "owner": {"name": "ann", "pin": SECRET}}, "c")


async def test_by_default_nothing_is_kept_but_digests_and_sizes(store):
    await gate_of(store).call(CALL, caller=ALICE)
    assert await kept(store) == [None, None]
    records, _ = await store.records(JournalFilter())
    assert all(record.input_digest and record.input_bytes for record in records)
    assert records[1].output_digest
    assert SECRET not in repr(records)


async def test_fields_are_taken_out_of_arguments_and_results(store):
    keep = KeepContent(arguments=True, results=True, redact=("/number", "/owner/pin", "/items/*/number"))
    await gate_of(store, keep).call(CALL, caller=ALICE)
    arguments, result = await kept(store)
    assert arguments == {"number": "(redacted)", "owner": {"name": "ann", "pin": "(redacted)"}}
    written = json.loads(result["text"])
    assert written["items"] == [{"number": "(redacted)"}] * 2
    assert SECRET not in json.dumps([arguments, result])


async def test_a_text_without_fields_and_blocks_are_not_kept_where_something_is_to_be_taken_out(store):
    await gate_of(store, KeepContent(results=True, redact=("/number",))).call(ToolCall("told", {"number": SECRET}), caller=ALICE)
    _, result = await kept(store)
    assert result == {"text": "(redacted)", "value": {"number": "(redacted)"}}


async def test_a_run_keeps_whole_results_until_it_ends_and_answers_with_value_and_blocks(store):
    gate = gate_of(store, KeepContent(redact=("/number",)))
    call = ToolCall("told", {"number": SECRET}, "c")
    first = await gate.call(call, caller=ALICE, run_id="r")
    again = await gate.call(call, caller=ALICE, run_id="r")
    assert (again.text, again.value, again.blocks) == (first.text, {"number": SECRET}, (ImageBlock(b"png", "image/png"),))
    await gate.end_run("r")
    assert await kept(store, "r") == [None, None]
    late = await gate.call(call, caller=ALICE, run_id="r")
    assert late.error.code == "result_forgotten"
    assert (await store.verify()).breaks == ()


async def test_content_is_forgotten_when_its_time_has_passed(store):
    clock = ManualClock()
    await gate_of(store, KeepContent(arguments=True, retention_s=60), clock).call(CALL, caller=ALICE)
    assert await store.purge(clock() + 59) == 0
    assert await store.purge(clock() + 60) == 1
    assert await kept(store) == [None, None]


def test_what_cannot_be_is_refused():
    for wrong in ({"redact": ("number",)}, {"retention_s": 0}):
        with pytest.raises(UsageError):
            KeepContent(**wrong)
