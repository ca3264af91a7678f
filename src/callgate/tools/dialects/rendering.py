"""Render tools for one provider: each in its form, or left out with the reason, so that one tool never spoils the others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from callgate.errors import UsageError
from callgate.tools.dialects.gemini import gemini_schema
from callgate.tools.dialects.names import Dialect, NameMap, name_map
from callgate.tools.dialects.plain import anthropic_schema, mcp_output_schema, mcp_schema, openai_schema
from callgate.tools.dialects.references import Inexpressible
from callgate.tools.dialects.restore import restore_by_schema
from callgate.tools.dialects.roots import refuse_invalid
from callgate.tools.dialects.strict import NotStrict, strict_schema

__all__ = ("DIALECTS", "Note", "Rendered", "Skipped", "ToolShape", "render", "restore_arguments")

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
"""Every dialect, in the order in which they are documented."""


class ToolShape(Protocol):
    """Say what rendering needs of a tool; schemas are neutral JSON Schema (draft 2020-12) and may be frozen mappings."""

    @property
    def name(self) -> str:
        """The tool's own name, of any characters."""
        ...

    @property
    def description(self) -> str | None:
        """What the tool does, for the model."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The schema of the arguments object."""
        ...

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The schema of the output, when it is declared."""
        ...

    @property
    def kind(self) -> str:
        """The host's word for what the tool does; `"read"` becomes MCP's `readOnlyHint`."""
        ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """Say that the tool `name` was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Say that the tool `name` was rendered in a weaker form than the dialect's usual one, and why."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """Hold tools in the form of one provider.

    `tools` are the provider's tool objects, in the order given: for Chat Completions `{"type": "function", "function": …}`, for
    Gemini the function declarations, for MCP the entries of `tools/list`. They share nothing with the tools they came from.
    `names` translates names, those of skipped tools included. `skipped` are the tools left out, `notes` those weakened.
    """

    tools: list[dict[str, Any]]
    names: NameMap
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class _Written:
    tool: dict[str, Any]
    note: str = ""


def render(tools: Iterable[ToolShape], dialect: Dialect) -> Rendered:
    """Render tools in a dialect.

    A rendered schema may accept more than the tool's own, never less: the gate checks every call against the tool's own. A
    tool without a form in the dialect is left out and named in `skipped`.

    Raises ToolDefinitionError when two tools would have one name there, UsageError for a dialect that does not exist.
    """
    write = _writer(dialect)
    given = list(tools)
    names = name_map((tool.name for tool in given), dialect)
    rendered: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    notes: list[Note] = []
    for tool in given:
        try:
            refuse_invalid(tool.input_schema)
            written = write(tool, names.wire(tool.name))
        except Inexpressible as error:
            skipped.append(Skipped(tool.name, error.reason))
            continue
        except RecursionError:  # short references can lead to deep schemas, which no provider takes either
            skipped.append(Skipped(tool.name, "the schema nests too deeply once its references are written out"))
            continue
        rendered.append(written.tool)
        notes += [Note(tool.name, written.note)] if written.note else []
    return Rendered(rendered, names, tuple(skipped), tuple(notes))


def restore_arguments(tool: ToolShape, dialect: Dialect, arguments: Mapping[str, object]) -> dict[str, object]:
    """Turn arguments that a model gave in a dialect into arguments of the tool's own schema.

    In strict mode null for an optional parameter that does not take null means its absence; where a dialect lists numbers or
    booleans as text, `"2"` becomes 2; renamed parameters get their names back. `arguments` stay as they are. Raises UsageError
    for a dialect that does not exist.
    """
    _writer(dialect)
    return restore_by_schema(tool.input_schema, dialect, arguments)


def _described(tool: ToolShape) -> dict[str, Any]:
    return {"description": tool.description} if tool.description else {}


def _openai(tool: ToolShape, wire: str) -> _Written:
    schema = openai_schema(tool.input_schema)
    return _Written({"type": "function", "function": {"name": wire, **_described(tool), "parameters": schema}})


def _openai_strict(tool: ToolShape, wire: str) -> _Written:
    try:
        schema, strict, note = strict_schema(tool.input_schema), True, ""
    except (NotStrict, Inexpressible) as error:  # the plain form may do, or says itself why not
        schema, strict, note = openai_schema(tool.input_schema), False, f"rendered without strict mode: {error.reason}"
    function = {"name": wire, **_described(tool), "parameters": schema, "strict": strict}
    return _Written({"type": "function", "function": function}, note)


def _anthropic(tool: ToolShape, wire: str) -> _Written:
    return _Written({"name": wire, **_described(tool), "input_schema": anthropic_schema(tool.input_schema)})


def _gemini(tool: ToolShape, wire: str) -> _Written:
    schema = gemini_schema(tool.input_schema)
    return _Written({"name": wire, **_described(tool), **({} if schema is None else {"parameters": schema})})


def _mcp(tool: ToolShape, wire: str) -> _Written:
    output = None if tool.output_schema is None else mcp_output_schema(tool.output_schema)
    written = {"name": wire, **_described(tool), "inputSchema": mcp_schema(tool.input_schema)}
    written |= {} if output is None else {"outputSchema": output}
    note = "" if output is not None or tool.output_schema is None else "its output schema is left out: it is not one of an object"
    return _Written({**written, "annotations": {"readOnlyHint": tool.kind == "read"}}, note)


_WRITERS: Mapping[Dialect, Callable[[ToolShape, str], _Written]] = {
    "openai": _openai,
    "openai_strict": _openai_strict,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "mcp": _mcp,
}


def _writer(dialect: Dialect) -> Callable[[ToolShape, str], _Written]:
    try:
        return _WRITERS[dialect]
    except KeyError:
        raise UsageError(f"there is no dialect {dialect!r}; the dialects are {', '.join(_WRITERS)}") from None
