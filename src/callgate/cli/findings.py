"""Say what of a tool's definition a model, or a provider, would stumble over."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from callgate.errors import ToolDefinitionError
from callgate.tools.dialects import DIALECTS, Dialect, render
from callgate.tools.signature import FunctionInput
from callgate.tools.tool import Tool

__all__ = ("Finding", "Level", "findings")

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold one finding: an error cannot work, a warning misleads or withholds, a note is worth knowing.

    `tool` is empty when it is about all of them; `subject` is a parameter, a dialect, or a word such as "description".
    """

    level: Level
    tool: str
    subject: str
    text: str


def findings(tools: Sequence[Tool[Any, Any]]) -> list[Finding]:
    """Check definitions: descriptions that are missing, and what each provider's dialect makes of names and schemas."""
    found = [finding for tool in tools for finding in _descriptions(tool)]
    return found + [finding for dialect in DIALECTS for finding in _dialect(tools, dialect)]


def _descriptions(tool: Tool[Any, Any]) -> Iterator[Finding]:
    if not (tool.description or "").strip():
        yield Finding("warning", tool.name, "description", "has none: the model has only the name to go by")
    if isinstance(tool.input, FunctionInput):
        yield from (Finding("warning", tool.name, finding.parameter, finding.problem) for finding in tool.input.findings)
    else:
        yield from (Finding("warning", tool.name, name, "it has no description") for name in _bare_parameters(tool.input_schema))


def _bare_parameters(schema: Mapping[str, Any]) -> Iterator[str]:
    """Name the parameters that neither say what they are nor refer to a local definition that does."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    for name, value in properties.items():
        own: Mapping[str, Any] = {} if isinstance(value, bool) else value
        shared: Mapping[str, Any] = definitions.get(str(own.get("$ref", "")).removeprefix("#/$defs/"), {})
        if not (own.get("description") or shared.get("description")):
            yield name


def _dialect(tools: Sequence[Tool[Any, Any]], dialect: Dialect) -> Iterator[Finding]:
    try:
        rendered = render(tools, dialect)
    except ToolDefinitionError as error:
        yield Finding("error", error.tool, dialect, error.reason)
        return
    for skipped in rendered.skipped:
        yield Finding("warning", skipped.name, dialect, f"is left out of this dialect: {skipped.reason}")
    yield from (Finding("note", note.name, dialect, note.text) for note in rendered.notes)
    out = {skipped.name for skipped in rendered.skipped}
    for tool in tools:
        if tool.name not in out and rendered.names.wire(tool.name) != tool.name:
            yield Finding("note", tool.name, dialect, f"is sent as {rendered.names.wire(tool.name)!r}")
