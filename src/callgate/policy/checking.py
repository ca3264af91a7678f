"""Close the world of a policy: a rule about what does not exist is a mistake, and would otherwise be silently without effect."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from callgate.errors import PolicyError
from callgate.policy.budgets import BudgetRule
from callgate.policy.globs import matches
from callgate.policy.rules import Rule
from callgate.tools.tool import Tool

__all__ = ("check_rules",)

Places = Mapping[str, tuple[str, int]]


def check_rules(
    rules: Sequence[Rule],
    budgets: Sequence[BudgetRule],
    catalog: Sequence[Tool[Any, Any]],
    roles: frozenset[str] | None,
    places: Places,
) -> None:
    """Check that rules and budgets are about tools, kinds, tags, labels, arguments and roles that there are.

    Raises:
        PolicyError: one is not; the error says where it is written.
    """
    known: dict[str, Any] = {
        "kinds": {tool.kind for tool in catalog},
        "tags": {tag for tool in catalog for tag in tool.tags},
        "labels": {label for tool in catalog for label in tool.options.emits},
        "roles": roles,
    }
    for rule in rules:
        for problem in _problems(rule, catalog, known):
            raise _error(rule.id, problem, places)
    for budget in budgets:
        for pattern in budget.tools:
            if not any(matches(pattern, tool.name) for tool in catalog):
                raise _error(budget.id, _unknown("tool", pattern, [tool.name for tool in catalog]), places)


def _error(rule: str, problem: str, places: Places) -> PolicyError:
    file, line = places.get(rule, (None, None))
    return PolicyError(f"rule {rule!r}: {problem}", file=file, line=line)


def _unknown(kind: str, word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(word, names, 1, 0.6)
    hint = f"; the nearest is {near[0]!r}" if near else f"; known are {', '.join(names[:10])}" if names else ""
    return f"there is no {kind} {word!r}{hint}"


def _problems(rule: Rule, catalog: Sequence[Tool[Any, Any]], known: Mapping[str, Any]) -> Iterator[str]:
    for pattern in rule.tools:
        if not any(matches(pattern, tool.name) for tool in catalog):
            yield _unknown("tool", pattern, [tool.name for tool in catalog])
    for kind in ("kinds", "tags", "labels", "roles"):
        words: set[str] | frozenset[str] | None = known[kind]
        named: tuple[str, ...] = getattr(rule, kind)
        for word in named:
            if words is not None and word not in words:
                yield _unknown(kind.removesuffix("s"), word, words)
    about = [tool for tool in catalog if rule.is_about(tool)]
    for condition in rule.when:
        if about and not any(_has_path(tool.input.schema, condition.path) for tool in about):
            arguments = sorted(
                {f"/{name}" for tool in about for name in cast("Mapping[str, Any]", tool.input.schema.get("properties", {}))}
            )
            yield _unknown("argument", condition.path, arguments)


def _has_path(schema: Mapping[str, Any], path: str) -> bool:
    segments = [segment.replace("~1", "/").replace("~0", "~") for segment in path[1:].split("/")]
    return _leads(schema, segments, schema, 0)


def _leads(schema: Any, segments: list[str], root: Mapping[str, Any], depth: int) -> bool:
    """Tell whether a path may lead somewhere; a schema that says nothing of a place leaves it open."""
    if not segments or schema is True or depth > 64:
        return True
    if not isinstance(schema, Mapping):
        return False
    place = cast("Mapping[str, Any]", schema)
    if "$ref" in place:
        return _leads(_target(root, str(place["$ref"])), segments, root, depth + 1)
    branches = [branch for key in ("anyOf", "oneOf", "allOf") for branch in place.get(key, ())]
    if any(_leads(branch, segments, root, depth + 1) for branch in branches):
        return True
    return any(_leads(inner, segments[1:], root, depth + 1) for inner in _inner(place, segments[0], closed=bool(branches)))


def _inner(place: Mapping[str, Any], segment: str, *, closed: bool) -> list[Any]:
    properties = cast("Mapping[str, Any]", place.get("properties", {}))
    found: list[Any] = list(properties.values()) if segment == "*" else [properties[segment]] if segment in properties else []
    extra = place.get("additionalProperties", not (properties or closed or place.get("type") not in {None, "object"}))
    if extra is not False and segment not in properties:
        found.append(extra)
    if segment == "*" or segment.isdecimal():
        found += [item for item in (place.get("items"), *place.get("prefixItems", ())) if item is not None]
    return found


def _target(root: Mapping[str, Any], reference: str) -> Any:
    target: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part and isinstance(target, Mapping):
            target = cast("Mapping[str, Any]", target).get(part, True)
    return target
