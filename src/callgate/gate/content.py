"""What of a call's content the journal keeps, and how an outcome is written there and read again.

By default only digests and sizes are kept, and of the calls of a run their results until it ends, because a run that is
resumed has to give its model the results that it had.
"""

import base64
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from callgate.errors import CallgateError, InvalidOutputError, ToolError, UsageError
from callgate.gate.outcomes import Denied, Failed, Succeeded
from callgate.registry import Call
from callgate.tools.plain_arguments import plain_arguments
from callgate.tools.writing import write_output
from callgate.values import BinaryBlock, ContentBlock, ImageBlock, TextBlock, check_limit

__all__ = (
    "KeepContent",
    "StoredError",
    "blocks_of",
    "content_of_error",
    "content_of_outcome",
    "content_of_result",
    "kept_arguments",
    "written_blocks",
)

_REDACTED: Final = "(redacted)"


class StoredError(ToolError):
    """Stand for an error that was raised in another process, or earlier: its text, code and status are as they were."""

    code = "stored_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepContent:
    """Say which content the journal keeps for the host: by default none, digests and sizes tell the same call apart.

    `redact` are JSON pointers (`/card/number`, with `*` for any key or item) whose values are replaced in arguments and in
    results that are JSON; with `redact`, results that a run needs are forgotten when it ends. `retention_s` is how long
    content is kept, in seconds (None: until it is purged by hand).
    """

    arguments: bool = False
    results: bool = False
    redact: tuple[str, ...] = ()
    retention_s: float | None = None

    def __post_init__(self) -> None:
        check_limit("retention_s", self.retention_s)
        for pointer in self.redact:
            if not pointer.startswith("/"):
                raise UsageError(f"redact holds JSON pointers such as '/card/number', not {pointer!r}")

    def until(self, at: float) -> float | None:
        """Give the moment at which content of that moment is to be forgotten."""
        return None if self.retention_s is None else at + self.retention_s

    def of_result(
        self, content: dict[str, object] | None, run_id: str | None, at: float
    ) -> tuple[dict[str, object] | None, bool, float | None]:
        """Give what is kept of a result: the content, whether for the run only, and until when."""
        if content is None or (run_id is None and not self.results):
            return None, False, None
        if run_id is None:
            return self._redacted_result(content), False, self.until(at)
        for_run = not self.results or bool(self.redact)
        return content, for_run, None if for_run else self.until(at)

    def _redacted_result(self, content: dict[str, object]) -> dict[str, object]:
        if not self.redact:
            return content
        kept = {key: value for key, value in content.items() if key != "blocks"}
        text = kept.get("text")
        if isinstance(text, str):
            kept["text"] = self._redacted_text(text)
        if "value" in kept:
            kept["value"] = redacted(kept["value"], self.redact)
        return kept

    def _redacted_text(self, text: str) -> str:
        try:
            value = json.loads(text)
            return json.dumps(redacted(value, self.redact), ensure_ascii=False)
        except (ValueError, RecursionError):
            return _REDACTED  # what is no JSON has no fields: nothing tells where the secret stands in it


def redacted(value: Any, pointers: tuple[str, ...]) -> Any:
    """Give a copy of a JSON value in which what the pointers name is replaced."""
    for pointer in pointers:
        value = _replaced(value, [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")])
    return value


def _replaced(value: Any, path: list[str]) -> Any:
    if not path:
        return _REDACTED
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _replaced(item, rest) if head in {"*", key} else item for key, item in fields.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright wants it
        return [_replaced(item, rest) if head in {"*", str(place)} else item for place, item in enumerate(items)]
    return value


def kept_arguments(keep: KeepContent, call: Call, at: float) -> tuple[str | None, float | None]:
    """Give the arguments of a call as the journal keeps them, and until when."""
    if not keep.arguments or not call.parsed:
        return None, None
    shown = redacted(plain_arguments(call.entry.tool, call.arguments, call.text), keep.redact)
    try:
        return json.dumps(shown, ensure_ascii=False, sort_keys=True), keep.until(at)
    except (ValueError, TypeError, RecursionError):  # the tool's own type made what JSON cannot hold; the digest tells it apart
        return None, None


def content_of_result(call: Call, result: Succeeded) -> dict[str, object]:
    """Write a result for the journal: the model's text, the value where the text is not its JSON, and the blocks."""
    content: dict[str, object] = {"text": result.text}
    if call.reworded or call.notes:
        _keep_value(content, call.entry.name, result.value)
    if result.blocks:
        content["blocks"] = written_blocks(result.blocks)
    return content


def content_of_outcome(outcome: Succeeded | Failed | Denied) -> dict[str, object]:
    """Write an outcome that a hook gave in the place of the tool's."""
    if isinstance(outcome, Failed):
        return content_of_error(outcome.text, outcome.error)
    if isinstance(outcome, Denied):
        return content_of_error(outcome.text, outcome.error, outcome.by, outcome.reason)
    content: dict[str, object] = {"text": outcome.text, "blocks": written_blocks(outcome.blocks)}
    _keep_value(content, "(a hook)", outcome.value)
    return content


def _keep_value(content: dict[str, object], name: str, value: object) -> None:
    with contextlib.suppress(InvalidOutputError, ValueError, RecursionError):  # a value that is no JSON, and a text made for it
        content["value"] = json.loads(write_output(name, value).text)


def written_blocks(blocks: tuple[ContentBlock, ...]) -> list[dict[str, str]]:
    """Write content blocks as JSON values."""
    return [_written_block(block) for block in blocks]


def _written_block(block: ContentBlock) -> dict[str, str]:
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text}
        case ImageBlock(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mime_type": mime_type}
        case BinaryBlock(data, mime_type):
            return {"type": "binary", "data": base64.b64encode(data).decode(), "mime_type": mime_type}


def blocks_of(written: object) -> tuple[ContentBlock, ...]:
    """Read content blocks again."""
    blocks = cast("list[Mapping[str, str]]", written or [])
    return tuple(_read_block(block) for block in blocks)


def _read_block(block: Mapping[str, str]) -> ContentBlock:
    if block["type"] == "text":
        return TextBlock(block["text"])
    data = base64.b64decode(block["data"])
    return ImageBlock(data, block["mime_type"]) if block["type"] == "image" else BinaryBlock(data, block["mime_type"])


def content_of_error(text: str, error: CallgateError, by: str | None = None, reason: str = "") -> dict[str, object]:
    """Write a failure for the journal: what the model reads, what programs ask of the error, who refused and why."""
    facts = {"code": error.code, "status": error.status, "message": error.user_message}
    return {"text": text, "error": facts, "by": by, "reason": reason}
