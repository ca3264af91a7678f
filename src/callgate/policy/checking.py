"""Close the world of a policy: a rule about what does not exist is a mistake, and would otherwise be silently without effect."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, cast

from callgate.policy.budgets import BudgetRule
from callgate.policy.conditions import Condition, segments_of
from callgate.policy.globs import is_glob, matches, prefix_of
from callgate.policy.lines import Way
from callgate.policy.rules import Rule
from callgate.tools.tool import Tool

__all__ = ("Fault", "fault_of_ids", "fault_of_roles", "first_fault")

Catalog = Sequence[Tool[Any, Any]]
_DEEPEST = 64


class Fault(NamedTuple):
    """Be what is wrong with a rule or budget, and where: `way` begins with "rule" or "budget" and its place."""

    way: Way
    reason: str


def fault_of_ids(rules: Sequence[Rule], budgets: Sequence[BudgetRule]) -> Fault | None:
    """Find an id that is there twice, or is one of the gate's own: an approval covers the rules that asked, by their ids."""
    seen: set[str] = set()
    named: list[tuple[Way, str]] = [(("rule", place, "id"), rule.id) for place, rule in enumerate(rules)]
    named += [(("budget", place, "id"), budget.id) for place, budget in enumerate(budgets)]
    for way, name in named:
        if name == "default" or name.startswith(("tool:", "policy:")):
            return Fault(way, f"the id {name!r} is the gate's own; choose another one")
        if name in seen:
            return Fault(way, f"two rules have the id {name!r}")
        seen.add(name)
    return None


def fault_of_roles(rules: Sequence[Rule], roles: frozenset[str] | None) -> Fault | None:
    """Find a role that is not among those that the policy declares (None: it declares none)."""
    for place, rule in enumerate(rules if roles is not None else ()):
        for role in rule.roles:
            if role not in (roles or ()):
                return Fault(("rule", place, "roles"), f"rule {rule.id!r}: {_unknown('role', role, roles or ())}")
    return None


def first_fault(rules: Sequence[Rule], budgets: Sequence[BudgetRule], catalog: Catalog) -> Fault | None:
    """Find the first rule or budget that is about a tool, kind, tag, label or argument that no tool of the catalog has."""
    world = _World(catalog)
    for place, rule in enumerate(rules):
        for way, problem in world.problems_of(rule):
            return Fault(("rule", place, *way), f"rule {rule.id!r}: {problem}")
    for place, budget in enumerate(budgets):
        for pattern in world.unknown_tools(budget.tools):
            return Fault(("budget", place, "tools"), f"rule {budget.id!r}: {_unknown('tool', pattern, world.names)}")
    return None


class _World:
    """Know what a catalog has, so that ten thousand tools are not gone through for each rule."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tools = {tool.name: tool for tool in catalog}
        self.names = sorted(self._tools)
        self._words = {
            "kinds": {tool.kind for tool in catalog},
            "tags": {tag for tool in catalog for tag in tool.tags},
            "labels": {label for tool in catalog for label in tool.options.emits},
        }

    def problems_of(self, rule: Rule) -> Iterator[tuple[Way, str]]:
        """Give what is wrong with a rule."""
        for pattern in self.unknown_tools(rule.tools):
            yield ("tools",), _unknown("tool", pattern, self.names)
        for key, known in self._words.items():
            for word in getattr(rule, key):
                if word not in known:
                    yield (key,), _unknown(key.removesuffix("s"), word, known)
        if not any(rule.is_about(tool) for tool in self._of_patterns(rule.tools)):
            yield (), "it fits no tool: none has all that it names"
        for place, condition in enumerate(rule.when):
            for lost in self._without_path(rule, condition):
                yield ("when", place, "path"), _unknown("argument", condition.path, _arguments_of(lost))

    def unknown_tools(self, patterns: Iterable[str]) -> Iterator[str]:
        """Give the patterns that no tool's name fits."""
        return (pattern for pattern in patterns if not any(True for _ in self._of_pattern(pattern)))

    def _of_patterns(self, patterns: Sequence[str]) -> Iterator[Tool[Any, Any]]:
        if not patterns:
            yield from self._catalog
        for pattern in patterns:
            yield from self._of_pattern(pattern)

    def _of_pattern(self, pattern: str) -> Iterator[Tool[Any, Any]]:
        if not is_glob(pattern):
            if pattern in self._tools:
                yield self._tools[pattern]
            return
        prefix = prefix_of(pattern)
        for place in range(bisect_left(self.names, prefix), len(self.names)):
            name = self.names[place]
            if not name.startswith(prefix):
                return
            if matches(pattern, name):
                yield self._tools[name]

    def _without_path(self, rule: Rule, condition: Condition) -> Iterator[list[Tool[Any, Any]]]:
        """Give the tools of each name or glob of a rule of which none has the argument that a condition is about."""
        segments = segments_of(condition.path)
        each_alone: list[tuple[str, ...]] = [(pattern,) for pattern in rule.tools] or [()]
        for patterns in each_alone:
            lost: list[Tool[Any, Any]] = []
            for tool in self._of_patterns(patterns):
                if not rule.is_about(tool):
                    continue
                if _leads(tool.input.schema, segments, tool.input.schema, 0):
                    break
                lost.append(tool)
            else:
                if lost:
                    yield lost


def _unknown(kind: str, word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(word, names, 1, 0.6)
    hint = f"; the nearest is {near[0]!r}" if near else f"; known are {', '.join(names[:10])}" if names else ""
    return f"there is no {kind} {word!r}{hint}"


def _arguments_of(tools: Sequence[Tool[Any, Any]]) -> set[str]:
    return {f"/{name}" for tool in tools for name in cast("Mapping[str, Any]", tool.input.schema.get("properties", {}))}


# ── paths in schemas ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _leads(schema: Any, segments: Sequence[str], root: Mapping[str, Any], depth: int) -> bool:
    """Tell whether a path may lead somewhere; a schema that says nothing of a place leaves it open."""
    if not segments or schema is True or depth > _DEEPEST:
        return True
    if not isinstance(schema, Mapping):
        return False
    place = cast("Mapping[str, Any]", schema)
    ways = [_target(root, str(place["$ref"]))] if "$ref" in place else []
    ways += [branch for key in ("anyOf", "oneOf", "allOf") for branch in place.get(key, ())]
    if any(_leads(way, segments, root, depth + 1) for way in ways):
        return True
    inner = _inner(place, segments[0], closed=bool(ways))
    return any(_leads(each, segments[1:], root, depth + 1) for each in inner)


def _inner(place: Mapping[str, Any], segment: str, *, closed: bool) -> list[Any]:
    """Give the schemas of what may be inside a place under a segment; `closed` when other branches describe it."""
    properties = cast("Mapping[str, Any]", place.get("properties", {}))
    found: list[Any] = list(properties.values()) if segment == "*" else [properties[segment]] if segment in properties else []
    patterns = cast("Mapping[str, Any]", place.get("patternProperties", {}))
    found += patterns.values()
    kinds = _types(place)
    says_nothing = not (properties or patterns or closed or "items" in place or "prefixItems" in place)
    extra = place.get("additionalProperties", says_nothing and (not kinds or "object" in kinds))
    if extra is not False and segment not in properties:
        found.append(extra)
    if segment == "*" or segment.isdecimal():
        found += _items(place, kinds, closed=closed)
    return found


def _items(place: Mapping[str, Any], kinds: Sequence[str], *, closed: bool) -> list[Any]:
    items = [*place.get("prefixItems", ())]
    if "items" in place:
        items.append(place["items"])
    elif "array" in kinds and not closed:
        items.append(True)
    return items


def _types(place: Mapping[str, Any]) -> Sequence[str]:
    kinds: Any = place.get("type", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _target(root: Mapping[str, Any], reference: str) -> Any:
    target: Any = root
    for part in segments_of(reference.removeprefix("#")):
        if not isinstance(target, Mapping):
            return True
        target = cast("Mapping[str, Any]", target).get(part, True)
    return target
