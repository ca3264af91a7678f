"""Read a tool's docstring: what it does, and what each parameter means. Google, NumPy and Sphinx style, also mixed.

Sections are cut out here, tolerantly (no blank line before a header, blank lines after it, no summary: case a26), and
their entries are read by griffe. Everything that is about neither parameters nor results stays in the description.
"""

import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent, indent
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

__all__ = ("DocstringFinding", "Documentation", "docstring_findings", "read_docstring")

Style: TypeAlias = Literal["google", "numpy", "sphinx"]
_Part: TypeAlias = tuple[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Documentation:
    """Hold what a docstring says: `description` of the whole (None: nothing), `parameters` by name."""

    description: str | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DocstringFinding:
    """Tell what is wrong with the documentation of one parameter; nothing keeps the tool from working."""

    parameter: str
    problem: str


def docstring_findings(
    documented: Collection[str], parameters: Mapping[str, bool], *, open_ended: bool = False
) -> tuple[DocstringFinding, ...]:
    """Compare documented names with `parameters`, each with whether it has a description of any origin.

    `open_ended` allows other names: the function takes any keyword. Source: case a26.
    """
    unknown = [] if open_ended else [name for name in documented if name not in parameters]
    bare = [name for name, has_description in parameters.items() if not has_description]
    return (
        *(DocstringFinding(name, "the docstring describes it, but the tool has no such parameter") for name in unknown),
        *(DocstringFinding(name, "it has no description") for name in bare),
    )


def read_docstring(docstring: str | None) -> Documentation:
    """Read a docstring; one without sections costs no more than its clean-up."""
    if docstring is None:
        return Documentation()
    text = inspect.cleandoc(docstring)
    if _SIGN_OF_SECTIONS.search(text) is None:
        return Documentation(text.strip() or None)
    parts = list(_parts(text.splitlines()))
    parameters = {name: words for kind, lines in parts if kind in _READERS for name, words in _entries(kind, lines)}
    description = "\n".join(line for kind, lines in parts if kind == "text" for line in lines)
    return Documentation(re.sub(r"\n{3,}", "\n\n", description).strip() or None, MappingProxyType(parameters))


# Cutting. A part is text, something to drop, or parameters in one of the styles.

_PARAMETERS: Final = r"args|arguments|params|parameters|(?:keyword|other|optional|required) (?:args|arguments|params|parameters)"
_RESULTS: Final = r"returns?|yields?|raises?|exceptions|errors raised|warns|receives|type (?:args|arguments|params|parameters)"
_GOOGLE_HEADER: Final = re.compile(rf"(\s*)(?:(?P<parameters>{_PARAMETERS})|(?P<dropped>{_RESULTS}))\s*:\s*", re.IGNORECASE)
_NUMPY_HEADER: Final = re.compile(
    rf"\s*(?:(?P<parameters>{_PARAMETERS})|(?P<dropped>{_RESULTS})|[A-Z][\w ]*)\s*:?\s*", re.IGNORECASE
)
_NUMPY_RULE: Final = re.compile(r"\s*-{3,}\s*")
_ENTRY: Final = re.compile(r"(?:\\?\*){0,2}\w+\s*(?:\(.*?\))?\s*:(?:\s|$)")
_SPHINX_FIELD: Final = re.compile(
    r"(\s*):(?:(?P<parameters>param|parameter|arg|argument|key|keyword)\s+[^:]+"
    r"|(?P<dropped>type|returns?|rtype|yields?|ytype|raises?|except|exception)\b[^:]*):.*",
)
_SIGN_OF_SECTIONS: Final = re.compile(
    rf"^\s*(?:(?:{_PARAMETERS}|{_RESULTS})\s*:\s*$|-{{3,}}\s*$|:(?:param|arg|key|type|return|rtype|yield|raise|except))",
    re.IGNORECASE | re.MULTILINE,
)


def _parts(lines: Sequence[str]) -> Iterator[_Part]:
    start = 0
    while start < len(lines):
        kind, end = _part_at(lines, start)
        yield kind, lines[start:end]
        start = end


def _part_at(lines: Sequence[str], start: int) -> tuple[str, int]:
    """Give the kind of the part that begins at a line, and the line after it."""
    line = lines[start]
    if (match := _NUMPY_HEADER.fullmatch(line)) is not None and _is_rule(lines, start + 1):
        return _kind(match, "numpy"), _numpy_end(lines, start + 2)
    if (match := _GOOGLE_HEADER.fullmatch(line)) is not None:
        end = _block_end(lines, start) if _has_block(lines, start) else _flat_end(lines, start)
        return _kind(match, "google") if end > start + 1 else "text", end
    if (match := _SPHINX_FIELD.fullmatch(line)) is not None:
        return _kind(match, "sphinx"), _block_end(lines, start)
    return "text", start + 1


def _kind(match: re.Match[str], style: Style) -> str:
    found = match.groupdict()
    return style if found["parameters"] else "dropped" if found["dropped"] else "text"


def _is_rule(lines: Sequence[str], index: int) -> bool:
    return index < len(lines) and _NUMPY_RULE.fullmatch(lines[index]) is not None


def _numpy_end(lines: Sequence[str], start: int) -> int:
    """Find the next header; a field of Sphinx or a header of Google's ends a section as well."""
    end = start
    while end < len(lines):
        if (
            _is_rule(lines, end + 1)
            or _SPHINX_FIELD.fullmatch(lines[end])
            or (_GOOGLE_HEADER.fullmatch(lines[end]) and _has_block(lines, end))
        ):
            break
        end += 1
    return end


def _flat_end(lines: Sequence[str], start: int) -> int:
    """Find the end of entries that are no deeper than their header.

    The clean-up of a docstring that begins with a header takes their depth away (case a26, no summary).
    """
    end = start + 1
    while end < len(lines) and _GOOGLE_HEADER.fullmatch(lines[end]) is None and re.match(_ENTRY.pattern + r"|\s+\S", lines[end]):
        end += 1
    return end


def _has_block(lines: Sequence[str], start: int) -> bool:
    following = next((line for line in lines[start + 1 :] if line.strip()), "")
    return _depth(following) > _depth(lines[start])


def _block_end(lines: Sequence[str], start: int) -> int:
    """Find the first line after the block that is not deeper than its head; blank lines at its end are not its own."""
    end = start + 1
    for index in range(start + 1, len(lines)):
        if lines[index].strip():
            if _depth(lines[index]) <= _depth(lines[start]):
                break
            end = index + 1
    return end


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


# Reading entries.


def _entries(kind: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for entry in _griffe_entries(kind, _READERS[kind](lines)):
        words = re.sub(r"\s*\n\s*", " ", entry.description).strip() if entry.description else ""
        if words:
            yield entry.name.replace("\\", "").lstrip("*"), words


def _google_text(lines: Sequence[str]) -> str:
    """Give the entries as griffe wants them; a line that begins none goes on with the one before."""
    body = dedent("\n".join(line for line in lines[1:] if line.strip())).splitlines()
    body = [re.sub(r"^[-*]\s+(?=\w)", "", line) for line in body]
    entries = [line if _ENTRY.match(line) else f"    {line}" for line in body]
    first = next((index for index, line in enumerate(entries) if _ENTRY.match(line)), len(entries))
    # The blank first line keeps griffe's own clean-up from taking the header for a summary.
    return "\nArgs:\n" + indent("\n".join(entries[first:]), "    ")


def _numpy_text(lines: Sequence[str]) -> str:
    body = [re.sub(r"^(\s*[\w*, ]+?):\s", r"\1 : ", line) for line in dedent("\n".join(lines[2:])).splitlines()]
    return "Parameters\n----------\n" + "\n".join(body)


def _sphinx_text(lines: Sequence[str]) -> str:
    return dedent("\n".join(lines))


_READERS: Final = {"google": _google_text, "numpy": _numpy_text, "sphinx": _sphinx_text}


def _griffe_entries(kind: str, text: str) -> list[Any]:
    # Imported here, once: it takes half as long as pydantic, and `import callgate` has a limit. Only a docstring with
    # sections pays for it.
    import griffe  # noqa: PLC0415

    docstring = griffe.Docstring(text)
    match kind:
        case "google":
            sections = griffe.parse_google(docstring, warnings=False)
        case "numpy":
            sections = griffe.parse_numpy(docstring, warnings=False)
        case _:
            sections = griffe.parse_sphinx(docstring, warnings=False)
    return [entry for section in sections if section.kind is griffe.DocstringSectionKind.parameters for entry in section.value]
