"""`RulePolicy`: rules from Python or TOML; the strictest that fits wins, and what none fits is denied. Source: docs/adr/0010."""

import json
import tomllib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

from callgate.errors import PolicyError
from callgate.policy.budgets import BudgetRule
from callgate.policy.checking import check_rules
from callgate.policy.decision import Budget, Decision, OfferRequest, PolicyCall, Verdict
from callgate.policy.lines import line_of
from callgate.policy.protocol import ToolPolicy
from callgate.policy.rules import Rule, verdict_of
from callgate.tools.tool import Tool

__all__ = ("Explanation", "RulePolicy")

_KEPT_TOOLS: Final = 20_000
_TOP_KEYS: Final = frozenset({"default", "rule", "budget", "roles"})
_DEFAULT_REASON: Final = "no rule of the policy allows it"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Tell how a call was judged: the decision, the rules that fit, and those about the tool that did not."""

    decision: Decision
    fitting: tuple[Rule, ...]
    others: tuple[Rule, ...]


class RulePolicy(ToolPolicy):
    """Judge calls by rules. Of those that fit a call the strictest holds: DENY before ASK before ALLOW.

    `default` is for calls that no rule fits ("deny" unless it is said otherwise). `budgets` limit how often is called. With
    `roles` given, a rule may name those only. `tools` (or the gate, later) close the world: a rule about a tool, kind, tag,
    label or argument that no tool has is refused.

    Raises:
        PolicyError: a rule cannot be, or two have the same id.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        default: str = "deny",
        budgets: Iterable[BudgetRule] = (),
        roles: Iterable[str] | None = None,
        tools: Iterable[Tool[Any, Any]] | None = None,
    ) -> None:
        self._rules = tuple(rules)
        self._budgets = tuple(budgets)
        self._default = Decision(verdict_of(default, "default"), _DEFAULT_REASON if default != "allow" else "", ("default",))
        self._roles = None if roles is None else frozenset(roles)
        self._places: dict[str, tuple[str, int]] = {}
        self._about: OrderedDict[Tool[Any, Any], tuple[tuple[Rule, ...], tuple[BudgetRule, ...]]] = OrderedDict()
        self._said = {rule.id: Decision(rule.decision, rule.reason, (rule.id,)) for rule in self._rules}
        seen: set[str] = set()
        for name in [rule.id for rule in self._rules] + [budget.id for budget in self._budgets]:
            if name in seen:
                raise PolicyError(f"two rules have the id {name!r}")
            seen.add(name)
        if tools is not None:
            self.bind(tuple(tools))

    @classmethod
    def load(cls, path: str | PathLike[str], *, tools: Iterable[Tool[Any, Any]] | None = None) -> "RulePolicy":
        """Load a policy from a TOML file: `default`, `[[rule]]`, `[[budget]]` and, to close the world of roles, `roles`.

        Raises:
            PolicyError: it cannot be read or says what cannot be; the error names file and line.
        """
        file = str(path)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"it cannot be read: {error.__class__.__name__}", file=file) from error
        return cls.parse(text, file=file, tools=tools)

    @classmethod
    def parse(cls, text: str, *, file: str = "policy.toml", tools: Iterable[Tool[Any, Any]] | None = None) -> "RulePolicy":
        """Make a policy of TOML text; `file` is its name in errors.

        Raises:
            PolicyError: as `load`.
        """
        try:
            facts = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PolicyError(f"it is no TOML: {error}", file=file) from error
        unknown = facts.keys() - _TOP_KEYS
        if unknown:
            key = min(unknown)
            known = ", ".join(sorted(_TOP_KEYS))
            raise PolicyError(f"unknown key {key!r}; known are {known}", file=file, line=line_of(text, None, 0, key))
        rules = _all_of(text, file, facts, "rule", Rule.of)
        budgets = _all_of(text, file, facts, "budget", BudgetRule.of)
        try:
            policy = cls(rules, default=facts.get("default", "deny"), budgets=budgets, roles=facts.get("roles"))
        except PolicyError as error:
            raise PolicyError(error.reason, file=file, line=line_of(text, None, 0, "default")) from error
        policy._places = {
            each.id: (file, line_of(text, kind, place, None))
            for kind, each, place in [
                *(("rule", rule, place) for place, rule in enumerate(rules)),
                *(("budget", budget, place) for place, budget in enumerate(budgets)),
            ]
        }
        if tools is not None:
            policy.bind(tuple(tools))
        return policy

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in their order."""
        return self._rules

    @property
    def budgets(self) -> tuple[BudgetRule, ...]:
        """The budgets, in their order."""
        return self._budgets

    @property
    def digest(self) -> str:
        """The same for the same rules and budgets (SHA-256 in hex)."""
        covered = [repr(self._default), [_facts(rule) for rule in self._rules], [_facts(each) for each in self._budgets]]
        return sha256(json.dumps(covered, default=str).encode()).hexdigest()

    def bind(self, catalog: Sequence[Tool[Any, Any]], /) -> None:
        """Check the rules against the tools that there are; an empty catalog closes nothing.

        Raises:
            PolicyError: a rule is about what no tool has.
        """
        if catalog:
            check_rules(self._rules, self._budgets, catalog, self._roles, self._places)

    def resolve(self, catalog: Sequence[Tool[Any, Any]], request: OfferRequest, /) -> Sequence[Tool[Any, Any]]:
        """Offer what some call of this caller could be allowed or asked about; what is denied whatever it says is hidden."""
        return [tool for tool in catalog if self._may_be_called(tool, request)]

    def _may_be_called(self, tool: Tool[Any, Any], request: OfferRequest) -> bool:
        opened = self._default.verdict is not Verdict.DENY
        for rule in self._rules_about(tool)[0]:
            if not rule.is_for(request):
                continue
            if rule.decision is not Verdict.DENY:
                opened = True
            elif not rule.when:
                return False
        return opened

    def _rules_about(self, tool: Tool[Any, Any]) -> tuple[tuple[Rule, ...], tuple[BudgetRule, ...]]:
        """Give the rules about a tool, the strictest first, and the budgets: found once for each tool."""
        found = self._about.get(tool)
        if found is None:
            about = sorted((rule for rule in self._rules if rule.is_about(tool)), key=lambda rule: -rule.decision)
            found = tuple(about), tuple(each for each in self._budgets if each.is_about(tool.name))
            self._about[tool] = found
            while len(self._about) > _KEPT_TOOLS:
                self._about.popitem(last=False)
        return found

    def decide(self, call: PolicyCall, /) -> Decision:
        """Judge one call: the strictest rule that fits speaks, with the other rules of its kind that fit."""
        rules, budgets = self._rules_about(call.tool)
        said: Rule | None = None
        for rule in rules:
            if said is not None and (rule.decision is not Verdict.ASK or said.decision is not Verdict.ASK):
                break
            if rule.fits(call):
                if said is not None:
                    return self._asked(call, rules, budgets)
                said = rule
        decision = self._default if said is None else self._said[said.id]
        return decision if not budgets else _with(decision, budgets, call)

    def _asked(self, call: PolicyCall, rules: tuple[Rule, ...], budgets: tuple[BudgetRule, ...]) -> Decision:
        """Give an ASK with every rule that asks, because an approval covers those rules and no other."""
        asking = [rule for rule in rules if rule.decision is Verdict.ASK and rule.fits(call)]
        reasons = "; ".join(dict.fromkeys(rule.reason for rule in asking if rule.reason))
        return _with(Decision(Verdict.ASK, reasons, tuple(rule.id for rule in asking)), budgets, call)

    def explain(self, call: PolicyCall) -> Explanation:
        """Tell which rules decided a call and which, although they are about its tool, did not fit."""
        rules = self._rules_about(call.tool)[0]
        fitting = tuple(rule for rule in rules if rule.fits(call))
        return Explanation(self.decide(call), fitting, tuple(rule for rule in rules if rule not in fitting))


def _with(decision: Decision, budgets: tuple[BudgetRule, ...], call: PolicyCall) -> Decision:
    if decision.verdict is Verdict.DENY:
        return decision
    counted: list[Budget] = [budget for budget in (each.budget_of(call) for each in budgets) if budget is not None]
    return Decision(decision.verdict, decision.reason, decision.rules, tuple(counted))


def _facts(each: Rule | BudgetRule) -> dict[str, str]:
    return {one.name: repr(getattr(each, one.name)) for one in fields(each)}


def _all_of(text: str, file: str, facts: Mapping[str, Any], kind: str, make: Any) -> list[Any]:
    tables = facts.get(kind, [])
    if not isinstance(tables, list):
        raise PolicyError(f"write each {kind} as [[{kind}]]", file=file, line=line_of(text, None, 0, kind))
    made: list[Any] = []
    for place, table in enumerate(cast("list[object]", tables)):
        try:
            made.append(make(_table(table, kind)))
        except PolicyError as error:
            line = line_of(text, kind, place, _key_in(error.reason, table))
            raise PolicyError(error.reason, file=file, line=line) from error
    return made


def _table(table: object, kind: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise PolicyError(f"write each {kind} as [[{kind}]]")
    return cast("dict[str, Any]", table)


def _key_in(reason: str, table: object) -> str | None:
    """Find the key of a table that an error is about, for its line."""
    keys = cast("dict[str, object]", table) if isinstance(table, dict) else {}
    spoken = [key for key in keys if f"{key!r}" in reason or reason.startswith(f"{key} ")]
    if spoken:
        return spoken[0]
    nested = ("condition", "when"), ("operator", "when"), ("path", "when"), ("time", "time"), ("day", "time")
    return next((key for word, key in nested if word in reason and key in keys), None)
