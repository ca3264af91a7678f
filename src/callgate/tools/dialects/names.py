"""Give each tool and each parameter a name that a provider accepts, and find the way back in a table."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from callgate.errors import ToolDefinitionError, UsageError
from callgate.tools.dialects.references import Inexpressible

__all__ = ("Dialect", "NameMap", "name_map", "wire_keys", "wire_name")

Dialect = Literal["openai", "openai_strict", "anthropic", "gemini", "mcp"]
"""The form of one provider. `openai_strict` is OpenAI's form with `"strict": true` wherever a tool allows it."""

_DIGEST_CHARACTERS = 10


@dataclass(frozen=True, slots=True)
class _NameRule:
    characters: str
    max_length: int = 64
    first: str = ""

    def fits(self, name: str) -> bool:
        first = f"(?=[{self.first}])" if self.first else ""
        return re.fullmatch(f"{first}[{self.characters}]{{1,{self.max_length}}}", name) is not None


_TOOL_RULES: Mapping[Dialect, _NameRule] = {
    "openai": _NameRule("a-zA-Z0-9_-"),
    "openai_strict": _NameRule("a-zA-Z0-9_-"),
    "anthropic": _NameRule("a-zA-Z0-9_-"),
    "gemini": _NameRule("a-zA-Z0-9_.-", first="a-zA-Z_"),
    "mcp": _NameRule("a-zA-Z0-9_.-", max_length=128),
}
_KEY_RULES: Mapping[Dialect, _NameRule] = {
    "anthropic": _NameRule("a-zA-Z0-9_.-"),
    "gemini": _NameRule("a-zA-Z0-9_", first="a-zA-Z_"),
}
_SEPARATORS = frozenset(" ./:-")


@dataclass(frozen=True, slots=True)
class NameMap:
    """Translate between a tool's name and the name on the wire, by table, never by taking a name apart.

    `wires` maps names to wire names.
    """

    wires: Mapping[str, str]
    names: Mapping[str, str]

    def wire(self, name: str) -> str:
        """Give the wire name of a tool; raises UsageError for a tool that was not rendered with this map."""
        try:
            return self.wires[name]
        except KeyError:
            raise UsageError(f"tool {name!r} is not in this name map; render it together with the others") from None

    def name(self, wire: str) -> str:
        """Give the tool's name for what a model called; a name that is not in the table comes back as it is.

        The registry then looks it up and answers 404 or 403, so an invented name reaches no tool by this way.
        """
        return self.names.get(wire, wire)


def name_map(names: Iterable[str], dialect: Dialect) -> NameMap:
    """Build the table for these tools.

    Raises ToolDefinitionError, naming both, when two tools would have one wire name: a model's call must mean one tool.

    Source: OpenAI API reference, function name (letters, digits, underscores, dashes, 64); Anthropic's error "String should
    match pattern '^[a-zA-Z0-9_-]{1,128}$'", earlier and in Claude Desktop `{1,64}`, the narrower of which is kept; Google
    Vertex AI `FunctionDeclaration.name` (starts with a letter or underscore; letters, digits, underscores, dots, dashes; 64);
    MCP specification 2025-11-25, tool names (1 to 128 letters, digits, underscores, dashes, dots).
    """
    wires: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in names:
        wire = wire_name(name, dialect)
        if wire in taken:
            raise ToolDefinitionError(
                name, f"its name in the {dialect} dialect is {wire!r}, as is that of tool {taken[wire]!r}; rename one of them"
            )
        wires[name], taken[wire] = wire, name
    return NameMap(wires, taken)


def wire_name(name: str, dialect: Dialect) -> str:
    """Give the name that stands for a tool in a dialect: itself where it is accepted, else a stable substitute.

    Dots, slashes, colons and blanks become underscores. A name that is too long, or has other characters that are not
    accepted, also gets a digest of the whole name, so that two of them stay apart, in every process and after a restart.
    """
    return _substitute(name, _TOOL_RULES[dialect])


def wire_keys(keys: Iterable[str], dialect: Dialect) -> dict[str, str]:
    """Give the parameters that a provider does not accept by their name, each with the name that it accepts.

    Raises Inexpressible when two parameters would have one name.

    Source: Anthropic's error "input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"; Vertex AI
    `FunctionDeclaration.parameters` (start with a letter or underscore; letters, digits, underscores; 64). Both speak of the
    parameters themselves, not of keys further inside.
    """
    rule = _KEY_RULES.get(dialect)
    if rule is None:
        return {}
    wires = {key: _substitute(key, rule) for key in keys}
    owner: dict[str, str] = {}
    for key, wire in wires.items():
        if wire in owner:
            raise Inexpressible(f"parameters {owner[wire]!r} and {key!r} would both be named {wire!r}")
        owner[wire] = key
    return {key: wire for key, wire in wires.items() if key != wire}


def _substitute(name: str, rule: _NameRule) -> str:
    if rule.fits(name):
        return name
    unwanted = set(re.findall(f"[^{rule.characters}]", name))
    plain = re.sub(f"[^{rule.characters}]", "_", name)
    if rule.first and not re.match(f"[{rule.first}]", plain):
        plain = f"_{plain}"
    if name and unwanted <= _SEPARATORS and len(plain) <= rule.max_length:
        return plain
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{plain[: rule.max_length - _DIGEST_CHARACTERS - 1]}_{digest}"
