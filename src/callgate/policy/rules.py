"""A rule of a policy: which calls it is about, and what it says of them. Source: contract row A1; docs/adr/0010."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from callgate.errors import PolicyError
from callgate.policy.conditions import Condition, Judgement, judge
from callgate.policy.decision import OfferRequest, PolicyCall, Verdict
from callgate.policy.facts import FactError, read_at, read_list, read_table, text_of, texts_of
from callgate.policy.globs import Names
from callgate.policy.times import TimeWindow
from callgate.tools.tool import Tool

__all__ = ("Fit", "Rule", "verdict_of")

_VERDICTS: Final = {"allow": Verdict.ALLOW, "ask": Verdict.ASK, "deny": Verdict.DENY}
_LISTS: Final = ("tools", "kinds", "tags", "callers", "roles", "labels")


def verdict_of(word: Any, what: str = "decision") -> Verdict:
    """Read a decision.

    Raises:
        PolicyError: it is not "allow", "ask" or "deny".
    """
    if not isinstance(word, str) or word not in _VERDICTS:
        raise PolicyError(f'{what} must be "allow", "ask" or "deny", not {word!r}')
    return _VERDICTS[word]


@dataclass(frozen=True, slots=True)
class Fit:
    """Hold what a rule compares with, made for being asked often; None where every call fits."""

    tools: Names | None
    callers: Names | None
    kinds: frozenset[str] | None
    tags: frozenset[str] | None
    roles: frozenset[str] | None
    labels: frozenset[str] | None
    conditions: tuple[Condition, ...]
    is_static: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Say ALLOW, ASK or DENY of the calls that fit everything that is given; what is left out fits any call.

    `tools` and `callers` are names or whole-name globs, of which one has to fit; `kinds`, `tags`, `roles` and `labels` are
    words, of which the call has to have one. `labels` are what the run has read so far. All conditions of `when` have to
    hold, and `time` has to be now. `reason` may be shown to the model and to the person who is asked.

    Raises:
        PolicyError: a value is of another type, or cannot be.
    """

    id: str
    decision: Verdict
    tools: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    time: TimeWindow | None = None
    reason: str = ""
    _fit: Fit = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.id), str) or not self.id:
            raise FactError(f"a rule needs an id that is a text, not {self.id!r}", "id")
        if not isinstance(cast("object", self.decision), Verdict):
            raise FactError(f"decision must be a Verdict, not {self.decision!r}", "decision")
        for key in _LISTS:
            value = getattr(self, key)
            object.__setattr__(self, key, () if value == () else read_at(texts_of(key), value, key))
        if self.when != ():
            object.__setattr__(self, "when", read_at(_conditions_of, self.when, "when"))
        if not isinstance(cast("object", self.time), TimeWindow | None):
            raise FactError(f"time must be a TimeWindow, not {self.time!r}", "time")
        read_at(text_of("reason"), self.reason, "reason")
        object.__setattr__(self, "_fit", _fit_of(self))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Rule":
        """Make a rule of its facts, as in TOML.

        Raises:
            PolicyError: a key is unknown or missing, or a value cannot be.
        """
        return cls(**read_table(facts, "a rule", _READERS, ("id", "decision")))

    @property
    def compiled(self) -> "Fit":
        """What the rule compares with, made for being asked often."""
        return self._fit

    @property
    def is_static(self) -> bool:
        """Whether the rule fits every call of the tools that it is about."""
        return self._fit.is_static

    def is_about(self, tool: Tool[Any, Any]) -> bool:
        """Tell whether the rule is about a tool, whoever calls it with whatever arguments."""
        fit = self._fit
        return (
            (fit.tools is None or fit.tools.have(tool.name))
            and (fit.kinds is None or tool.kind in fit.kinds)
            and (fit.tags is None or not fit.tags.isdisjoint(tool.tags))
        )

    def is_for(self, call: PolicyCall | OfferRequest) -> bool:
        """Tell whether the rule is about a caller, at a moment, after what the run has read."""
        fit = self._fit
        return (
            (fit.roles is None or not fit.roles.isdisjoint(call.caller.roles))
            and (fit.callers is None or fit.callers.have(call.caller.subject))
            and (fit.labels is None or not fit.labels.isdisjoint(call.labels))
            and (self.time is None or self.time.holds(call.now))
        )

    def fits(self, call: PolicyCall) -> bool:
        """Tell whether the rule speaks of a call to a tool that it is about; what cannot be judged never loosens."""
        fit = self._fit
        if fit.is_static:
            return True
        if not self.is_for(call):
            return False
        for condition in fit.conditions:
            answer = judge(condition, call.arguments)
            if answer is Judgement.NO or (answer is Judgement.UNKNOWN and self.decision is Verdict.ALLOW):
                return False
        return True


def _as_condition(value: Any) -> Condition:
    return value if isinstance(value, Condition) else Condition.of(value)


def _conditions_of(value: object) -> tuple[Condition, ...]:
    conditions = read_list(value, "when must be a list of conditions", _as_condition)
    if not conditions:
        raise PolicyError("when must not be empty; leave it out when every call fits")
    return conditions


_READERS: Final = {
    "id": text_of("id"),
    "decision": verdict_of,
    **{key: texts_of(key) for key in _LISTS},
    "when": _conditions_of,
    "time": TimeWindow.of,
    "reason": text_of("reason"),
}


def _fit_of(rule: Rule) -> Fit:
    return Fit(
        tools=Names.of(rule.tools) if rule.tools else None,
        callers=Names.of(rule.callers) if rule.callers else None,
        kinds=frozenset(rule.kinds) or None,
        tags=frozenset(rule.tags) or None,
        roles=frozenset(rule.roles) or None,
        labels=frozenset(rule.labels) or None,
        conditions=rule.when,
        is_static=not (rule.callers or rule.roles or rule.labels or rule.when or rule.time),
    )
