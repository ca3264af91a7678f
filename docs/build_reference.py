"""Write docs/reference/api.md from the docstrings of the public objects: `python -m docs.build_reference`.

The source is read, not imported, so that the page is the same on every Python. A test fails when the page is out of date.
"""  # noqa: INP001 - docs is a folder of pages and no package

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import griffe

__all__ = ("PAGE", "main", "page")

PAGE: Final = Path(__file__).parent / "reference" / "api.md"

_MODULES: Final = (
    "callgate",
    "callgate.agent",
    "callgate.diagnostics",
    "callgate.policy",
    "callgate.profiles",
    "callgate.store",
    "callgate.testing",
    "callgate.tools.dialects",
    "callgate.tools.spill",
    "callgate.workflow",
)
_KEYWORDS: Final = (
    "callgate.tools.options.ToolOptions",
    "callgate.tools.options.ToolKeywords",
    "callgate.tools.tool.FormKeywords",
    "callgate.tools.tool.FunctionKeywords",
    "callgate.registry.requests.CallKeywords",
    "callgate.gate.gated.PlaceKeywords",
)
_LATE: Final = {"SQLStore": "store.sql.store.SQLStore"}  # loaded when it is asked for, so no import says where it is
_WIDTH: Final = 100
_HEAD: Final = """# API

Written from the docstrings by `python -m docs.build_reference`; do not edit it. Names are imported from the module of their
section. Defaults and options in tables: [configuration](configuration.md). Codes and statuses: [errors](errors.md).
"""

Described = griffe.Object | griffe.Alias


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Give the page as it should be."""
    package = griffe.load("callgate", docstring_parser="google")
    parts = [_HEAD]
    for module in _MODULES:
        inner = package if module == "callgate" else package[module.removeprefix("callgate.")]
        parts += [f"## `{module}`", _text(inner), *_objects(inner, inner.exports or ())]
    parts += ["## Keywords", *(_described(package[name.removeprefix("callgate.")]) for name in _KEYWORDS)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _objects(module: Described, names: Iterable[object]) -> Iterator[str]:
    members = [module.members.get(str(name)) or module.package[_LATE[str(name)]] for name in names]
    order = sorted(members, key=lambda member: (_is_constant(member), member.name.lower()))
    yield from (_described(_target(member)) for member in order)


def _is_constant(member: Described) -> bool:
    return _target(member).is_attribute


def _target(member: Described) -> Described:
    return member.final_target if isinstance(member, griffe.Alias) else member


def _described(member: Described) -> str:
    lines = [f"### `{member.name}`", _fenced(_signature(member)), _text(member)]
    if member.is_class:
        lines += [_described_member(inner) for inner in member.members.values() if _is_shown(inner)]
    return "\n\n".join(line for line in lines if line)


def _is_shown(member: Described) -> bool:
    if member.name.startswith("_") or member.is_alias or not member.docstring:
        return False
    return member.is_function or "property" in member.labels


def _described_member(member: Described) -> str:
    return f"#### `{member.parent.name}.{member.name}`\n\n{_fenced(_signature(member))}\n\n{_text(member)}"


def _fenced(code: str) -> str:
    return f"```text\n{code}\n```" if code else ""  # text: a formatter of code blocks would change the page


def _signature(member: Described) -> str:
    if isinstance(member, griffe.Class):
        return _class_signature(member)
    if isinstance(member, griffe.Function):
        word = "async def" if "async" in member.labels else "def"
        word = f"@classmethod\n{word}" if "classmethod" in member.labels else word
        return _call(f"{word} {member.name}", member.parameters, f" -> {_code(member.returns)}" if member.returns else "")
    if "property" in member.labels:
        return f"{member.name}: {_code(member.annotation)}"
    return f"{member.name} = {_code(member.value)}" if isinstance(member, griffe.Attribute) and member.value else ""


def _class_signature(kind: griffe.Class) -> str:
    bases = ", ".join(_code(base) for base in kind.bases)
    if bases.startswith("Protocol") or kind.name.endswith("Keywords"):
        return "\n".join([f"class {kind.name}({bases}):", *_fields(kind)])
    own = kind.members.get("__init__")
    if own is None and "dataclass" not in kind.labels:
        return f"class {kind.name}({bases})" if bases else f"class {kind.name}"
    base = f"  # {bases}" if bases else ""
    return _call(f"class {kind.name}", kind.parameters, base)


def _fields(kind: griffe.Class) -> list[str]:
    own = [each for each in kind.members.values() if "instance-attribute" in each.labels]
    return [f"    {each.name}: {_code(each.annotation)}" for each in own] or ["    ..."]


def _call(head: str, parameters: griffe.Parameters, tail: str) -> str:
    shown = list(_parameters(parameters))
    line = f"{head}({', '.join(shown)}){tail}"
    if max(map(len, line.splitlines())) <= _WIDTH:
        return line
    return "\n".join([f"{head}(", *(f"    {each}," for each in shown), f"){tail}"])


def _parameters(parameters: griffe.Parameters) -> Iterator[str]:
    marked = False
    previous: griffe.ParameterKind | None = None
    for each in parameters:
        if each.name in {"self", "cls"}:
            continue
        if previous is griffe.ParameterKind.positional_only and each.kind is not previous:
            yield "/"
        if each.kind is griffe.ParameterKind.keyword_only and not marked:
            marked = True
            yield "*"
        marked = marked or each.kind is griffe.ParameterKind.var_positional
        previous = each.kind
        yield _parameter(each)
    if previous is griffe.ParameterKind.positional_only:
        yield "/"


def _parameter(each: griffe.Parameter) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(each.kind, "")
    text = f"{stars}{each.name}"
    text += f": {_code(each.annotation)}" if each.annotation is not None else ""
    return f"{text} = {_default(each)}" if each.default is not None and not stars else text


def _default(each: griffe.Parameter) -> str:
    code = _code(each.default)
    if isinstance(each.default, griffe.ExprName) and code.startswith("_"):
        code = _code(getattr(each.default.resolved, "value", code))
    return "…" if re.search(r"\blambda\b|\b_[a-z]|\b_[A-Z]|\bfield\(", code) else code


def _code(expression: object) -> str:
    return str(expression)


def _text(member: Described) -> str:
    if member.docstring is None:
        return ""
    return "\n\n".join(_section(section) for section in member.docstring.parse("google", warnings=False))


def _section(section: griffe.DocstringSection) -> str:
    if isinstance(section, griffe.DocstringSectionRaises):
        lines = [f"- `{str(each.annotation).strip('()')}`: {' '.join(each.description.split())}" for each in section.value]
        return "Raises:\n\n" + "\n".join(lines)
    return _markdown(str(section.value))


def _markdown(text: str) -> str:
    """Fence what a docstring shows as a drawing: reStructuredText's `::` and blocks that are indented."""
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    return re.sub(r"(?:^ {4}.*\n?|^\s*\n(?= {4}))+", _drawn, text, flags=re.MULTILINE)


def _drawn(found: "re.Match[str]") -> str:
    lines = [line[4:].rstrip() for line in found[0].strip("\n").splitlines()]
    return "\n```text\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    main()
