"""The recorded calls of the demo, each with the answer that it has to get."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from callgate import ToolReply
from examples.shop.tools import SECRET

__all__ = ("Expected", "RecordedCall", "load", "mismatches")

CALLS = Path(__file__).with_name("calls.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Say how a call has to end.

    `code` is the error's, or None for a call that succeeds; `says` are texts that the model has to read, `note` is a
    word of the receipt's notes, `repaired` whether its name or arguments are repaired on the way.
    """

    code: str | None = None
    status: int | None = None
    says: tuple[str, ...] = ()
    note: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Hold one call as a model made it: `arguments` is JSON text, an object already decoded, or nothing."""

    id: str
    tool: str
    arguments: str | dict[str, object] | None
    expect: Expected


def load(path: Path = CALLS) -> list[RecordedCall]:
    """Read the calls, one JSON object a line."""
    reader = TypeAdapter(RecordedCall)
    return [reader.validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def mismatches(call: RecordedCall, reply: ToolReply) -> Iterator[str]:
    """Say in what `reply` is not the expected answer; nothing when it is."""
    receipt, expected = reply.invocation, call.expect
    if (receipt.error_code, receipt.error_status) != (expected.code, expected.status):
        yield f"expected {expected.status} {expected.code}, got {receipt.error_status} {receipt.error_code}"
    if bool(receipt.repairs) != expected.repaired:
        yield f"expected {'a' if expected.repaired else 'no'} repair, got {list(receipt.repairs)}"
    if expected.note not in " ".join(receipt.notes):
        yield f"expected the note {expected.note!r}, got {list(receipt.notes)}"
    yield from (f"the model does not read {text!r}" for text in expected.says if text not in reply.text)
    if SECRET in f"{reply.text} {receipt}":
        yield "a secret got out"
