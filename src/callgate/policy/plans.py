"""Find the rules about a tool: `RuleIndex`, so that a thousand rules cost a call no more than the few that are about its tool."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from callgate.policy.budgets import BudgetRule
from callgate.policy.decision import Decision, OfferRequest, Verdict
from callgate.policy.globs import is_glob, prefix_of
from callgate.policy.rules import Rule
from callgate.tools.tool import Tool

__all__ = ("Plan", "RuleIndex", "asked_by", "said_by")

_KEPT_TOOLS: Final = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Hold what a policy has to look at for the calls of some tools: tools that the same rules are about share one.

    `rules` are the strictest first. `decision` is what holds for every call (None: it depends on the call).
    """

    rules: tuple[Rule, ...]
    budgets: tuple[BudgetRule, ...]
    decision: Decision | None

    def may_be_called(self, request: OfferRequest, default: Verdict) -> bool:
        """Tell whether some call of a caller could be let through or asked about, whatever its arguments are."""
        opened = default is not Verdict.DENY
        for rule in self.rules:
            if rule.decision is not Verdict.DENY:
                opened = opened or rule.is_for(request)
            elif not rule.when and rule.is_for(request):
                return False
        return opened


def asked_by(rules: Iterable[Rule]) -> Decision:
    """Make the ASK of some rules: all of them, because an approval covers the rules that asked and no other."""
    asking = tuple(rules)
    reasons = "; ".join(dict.fromkeys(rule.reason for rule in asking if rule.reason))
    return Decision(Verdict.ASK, reasons, tuple(rule.id for rule in asking))


class RuleIndex:
    """Give each tool the plan of its rules and budgets, worked out once for a tool."""

    def __init__(self, rules: Sequence[Rule], budgets: Sequence[BudgetRule], default: Decision) -> None:
        self._rules = rules
        self._budgets = budgets
        self._default = default
        self._buckets: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, rule in enumerate(rules):
            for bucket in _buckets_of(rule):
                self._buckets[bucket].append(place)
        self._prefixes = sorted({len(text) for kind, text in self._buckets if kind == "prefix"})
        self._plans: dict[Tool[Any, Any], Plan] = {}
        self._shared: dict[tuple[tuple[int, ...], tuple[int, ...]], Plan] = {}
        self.known: Callable[[Tool[Any, Any]], Plan | None] = self._plans.get

    def plan_of(self, tool: Tool[Any, Any]) -> Plan:
        """Give a tool's plan."""
        plan = self._plans.get(tool)
        if plan is None:
            if len(self._plans) >= _KEPT_TOOLS:  # a host that makes its tools anew for each call must not fill the memory
                self._plans.clear()
                self._shared.clear()
            plan = self._plans[tool] = self._made_for(tool)
        return plan

    def _made_for(self, tool: Tool[Any, Any]) -> Plan:
        about = tuple(place for place in self._candidates(tool) if self._rules[place].is_about(tool))
        counting = tuple(place for place, budget in enumerate(self._budgets) if budget.is_about(tool.name))
        plan = self._shared.get((about, counting))
        if plan is None:
            rules = sorted((self._rules[place] for place in about), key=lambda rule: -rule.decision)
            plan = Plan(_reached(rules), tuple(self._budgets[place] for place in counting), self._constant(rules))
            self._shared[about, counting] = plan
        return plan

    def _candidates(self, tool: Tool[Any, Any]) -> list[int]:
        name = tool.name
        buckets = [("name", name), ("kind", tool.kind), ("any", ""), *(("tag", tag) for tag in tool.tags)]
        buckets += [("prefix", name[:length]) for length in self._prefixes if length <= len(name)]
        return sorted({place for bucket in buckets for place in self._buckets.get(bucket, ())})

    def _constant(self, rules: Sequence[Rule]) -> Decision | None:
        """Give the decision that holds for every call of a tool, if the rules about it leave no choice."""
        if not rules:
            return self._default
        if rules[0].decision is Verdict.DENY and rules[0].is_static:
            return said_by(rules[0])
        if not all(rule.is_static for rule in _reached(rules)):
            return None
        asking = [rule for rule in rules if rule.decision is Verdict.ASK]
        return asked_by(asking) if asking else said_by(rules[0])


def said_by(rule: Rule) -> Decision:
    """Make the decision of one rule."""
    return Decision(rule.decision, rule.reason, (rule.id,))


def _reached(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Leave out the rules that cannot speak, because one before them always does."""
    for place, rule in enumerate(rules):
        if rule.is_static and rule.decision is not Verdict.ASK:
            return tuple(rules[: place + 1])
        if rule.decision is Verdict.ALLOW and any(each.is_static for each in rules[:place]):
            return tuple(rules[:place])
    return tuple(rules)


def _buckets_of(rule: Rule) -> set[tuple[str, str]]:
    """Say in which places of the index a rule is looked for."""
    if rule.tools:
        return {("prefix", prefix_of(pattern)) if is_glob(pattern) else ("name", pattern) for pattern in rule.tools}
    if rule.kinds:
        return {("kind", kind) for kind in rule.kinds}
    return {("tag", tag) for tag in rule.tags} if rule.tags else {("any", "")}
