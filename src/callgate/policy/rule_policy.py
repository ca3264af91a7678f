"""`RulePolicy`: rules from Python or TOML; the strictest that fits wins, and what none fits is denied. Source: docs/adr/0010."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from callgate.errors import PolicyError
from callgate.policy.budgets import BudgetRule
from callgate.policy.checking import fault_of_ids, fault_of_roles, first_fault
from callgate.policy.decision import Budget, Decision, OfferRequest, PolicyCall, Verdict
from callgate.policy.explanation import Explanation, considered
from callgate.policy.facts import FactError, Reader, read_list, read_table, texts_of
from callgate.policy.lines import Way, lines_of, nearest, syntax_line
from callgate.policy.plans import Plan, RuleIndex, asked_by, said_by
from callgate.policy.protocol import ToolPolicy
from callgate.policy.rules import Rule, verdict_of
from callgate.tools.tool import Tool, as_tool

__all__ = ("RulePolicy", "Tools")

_KEPT_OFFERS: Final = 64
_DEFAULT_REASON: Final = "no rule of the policy allows it"


@runtime_checkable
class _Listing(Protocol):
    """Be a registry, of which only the list of its tools is asked for: a policy does not know registries (contract row A2)."""

    def list(self) -> Sequence[Tool[Any, Any]]:
        """Give the tools."""
        ...


Tools = Iterable[object] | _Listing
"""Tools to check a policy against: a registry, or tools and what can be made into one."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Say where a policy is written."""

    file: str | None = None
    lines: Mapping[Way, int] = field(default_factory=dict[Way, int])

    def error(self, reason: str, way: Way) -> PolicyError:
        """Make the error of what stands at the end of a way."""
        return PolicyError(reason, file=self.file, line=nearest(self.lines, way))


@dataclass(frozen=True, slots=True)
class _Offers:
    """Keep what was offered of one catalog, by what the rules look at in a request."""

    catalog: Sequence[Tool[Any, Any]]
    by_request: dict[object, tuple[Tool[Any, Any], ...]]


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
        tools: Tools | None = None,
    ) -> None:
        self._rules = tuple(rules)
        self._budgets = tuple(budgets)
        self._default = Decision(verdict_of(default, "default"), _DEFAULT_REASON if default != "allow" else "", ("default",))
        self._roles = None if roles is None else _roles_of(roles if isinstance(roles, str) else tuple(roles))
        self._written = _Written()
        fault = fault_of_ids(self._rules, self._budgets) or fault_of_roles(self._rules, self._roles)
        if fault is not None:
            raise FactError(fault.reason, *fault.way)
        self._index = RuleIndex(self._rules, self._budgets, self._default)
        self._asks = _Asks.of(self._rules)
        self._offers = _Offers([], {})
        self._said = {rule.id: said_by(rule) for rule in self._rules}
        if tools is not None:
            self.bind(_catalog_of(tools))

    @classmethod
    def load(cls, path: str | PathLike[str], tools: Tools | None = None) -> "RulePolicy":
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
    def parse(cls, text: str, *, file: str = "policy.toml", tools: Tools | None = None) -> "RulePolicy":
        """Make a policy of TOML text; `file` is its name in errors.

        Raises:
            PolicyError: as `load`.
        """
        written = _Written(file)
        try:
            facts = tomllib.loads(text)
            written = _Written(file, lines_of(text))
            given = read_table(facts, "a policy", _READERS)
            policy = cls(given.pop("rule", ()), budgets=given.pop("budget", ()), **given)
        except tomllib.TOMLDecodeError as error:
            raise PolicyError(f"it is no TOML: {error}", file=file, line=syntax_line(error, text)) from error
        except FactError as error:
            raise written.error(error.reason, error.at) from error
        except RecursionError as error:
            raise PolicyError("it cannot be read: it is nested too deep", file=file) from error
        except ValueError as error:  # a number of more digits than Python reads
            raise PolicyError(f"it cannot be read: {error}", file=file) from error
        policy._written = written
        if tools is not None:
            policy.bind(_catalog_of(tools))
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
        """The same for the same rules, budgets, roles and default (SHA-256 in hex)."""
        covered = [
            self._default.verdict.name,
            None if self._roles is None else sorted(self._roles),
            [_facts(rule) for rule in self._rules],
            [_facts(each) for each in self._budgets],
        ]
        return sha256(json.dumps(covered).encode()).hexdigest()

    def bind(self, catalog: Sequence[Tool[Any, Any]], /) -> None:
        """Check the rules against the tools that there are; an empty catalog closes nothing.

        Raises:
            PolicyError: a rule is about what no tool has.
        """
        fault = first_fault(self._rules, self._budgets, catalog) if catalog else None
        if fault is not None:
            raise self._written.error(fault.reason, fault.way)

    def resolve(self, catalog: Sequence[Tool[Any, Any]], request: OfferRequest, /) -> Sequence[Tool[Any, Any]]:
        """Offer what some call of this caller could be allowed or asked about; what is denied whatever it says is hidden."""
        offers, given = self._offers, list(catalog)
        if offers.catalog != given:
            offers = self._offers = _Offers(given, {})
        asked = self._asks.key_of(request)
        offered = offers.by_request.get(asked)
        if offered is None:
            if len(offers.by_request) >= _KEPT_OFFERS:
                offers.by_request.clear()
            offered = offers.by_request[asked] = self._offered(given, request)
        return offered

    def _offered(self, catalog: Sequence[Tool[Any, Any]], request: OfferRequest) -> tuple[Tool[Any, Any], ...]:
        answers: dict[Plan, bool] = {}
        offered: list[Tool[Any, Any]] = []
        for tool in catalog:
            plan = self._index.plan_of(tool)
            answer = answers.get(plan)
            if answer is None:
                answer = answers[plan] = plan.may_be_called(request, self._default.verdict)
            if answer:
                offered.append(tool)
        return tuple(offered)

    def decide(self, call: PolicyCall, /) -> Decision:
        """Judge one call: the strictest rule that fits speaks, with the other rules of its kind that fit."""
        plan = self._index.known(call.tool) or self._index.plan_of(call.tool)
        decision = plan.decision or self._judged(plan, call)
        return decision if not plan.budgets else _with(decision, plan.budgets, call)

    def always(self, tool: Tool[Any, Any], /) -> Decision | None:
        """Give what the rules say of every call of a tool, when they leave no choice and count nothing."""
        plan = self._index.plan_of(tool)
        return None if plan.budgets else plan.decision

    def _judged(self, plan: Plan, call: PolicyCall) -> Decision:
        asking: list[Rule] = []
        for rule in plan.rules:
            if asking and rule.decision is Verdict.ALLOW:
                break
            if rule.fits(call):
                if rule.decision is not Verdict.ASK:
                    return self._said[rule.id]
                asking.append(rule)
        if not asking:
            return self._default
        return self._said[asking[0].id] if len(asking) == 1 else asked_by(asking)

    def explain(self, call: PolicyCall) -> Explanation:
        """Tell which rules decided a call, and of every other one why it did not."""
        rules = sorted(self._rules, key=lambda rule: -rule.decision)
        return Explanation(self.decide(call), tuple(considered(rule, call) for rule in rules))


@dataclass(frozen=True, slots=True)
class _Asks:
    """Say what the rules look at in a request for an offer: two requests that are alike in it get the same offer."""

    callers: bool
    roles: frozenset[str]
    labels: frozenset[str]
    times: tuple[Rule, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> "_Asks":
        return cls(
            any(rule.callers for rule in rules),
            frozenset(role for rule in rules for role in rule.roles),
            frozenset(label for rule in rules for label in rule.labels),
            tuple(rule for rule in rules if rule.time is not None),
        )

    def key_of(self, request: OfferRequest) -> object:
        return (
            request.caller.subject if self.callers else None,
            self.roles.intersection(request.caller.roles),
            self.labels & request.labels,
            tuple(rule.time is None or rule.time.holds(request.now) for rule in self.times),
        )


def _roles_of(roles: object) -> frozenset[str]:
    return frozenset(() if roles in ((), []) else texts_of("roles")(roles))


def _catalog_of(tools: Tools) -> tuple[Tool[Any, Any], ...]:
    return tuple(as_tool(tool) for tool in (tools.list() if isinstance(tools, _Listing) else tools))


def _default_of(word: object) -> object:
    verdict_of(word, "default")
    return word


_READERS: Final[Mapping[str, Reader]] = {
    "default": _default_of,
    "roles": _roles_of,
    "rule": lambda tables: read_list(tables, "write each rule as [[rule]]", Rule.of),
    "budget": lambda tables: read_list(tables, "write each budget as [[budget]]", BudgetRule.of),
}


def _with(decision: Decision, budgets: tuple[BudgetRule, ...], call: PolicyCall) -> Decision:
    if decision.verdict is Verdict.DENY:
        return decision
    counted: list[Budget] = [budget for budget in (each.budget_of(call) for each in budgets) if budget is not None]
    return Decision(decision.verdict, decision.reason, decision.rules, tuple(counted))


def _facts(each: Rule | BudgetRule) -> dict[str, str]:
    return {one.name: repr(getattr(each, one.name)) for one in fields(each) if one.init}
