"""Tell how a call was judged: which rules were considered, which fit, which did not and why, and which decided."""

from dataclasses import dataclass

from callgate.policy.conditions import Judgement, judge
from callgate.policy.decision import Decision, PolicyCall, Verdict
from callgate.policy.rules import Rule

__all__ = ("Considered", "Explanation", "considered")


@dataclass(frozen=True, slots=True)
class Considered:
    """Tell of one rule whether it is about the tool of a call, whether it fits the call, and why (not)."""

    rule: Rule
    is_about: bool
    fits: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Tell how a call was judged: the decision, and all rules in the order in which they are looked at."""

    decision: Decision
    considered: tuple[Considered, ...]

    @property
    def fitting(self) -> tuple[Rule, ...]:
        """The rules that fit the call, the strictest first."""
        return tuple(each.rule for each in self.considered if each.fits)

    @property
    def others(self) -> tuple[Rule, ...]:
        """The rules that are about the call's tool and yet do not fit."""
        return tuple(each.rule for each in self.considered if each.is_about and not each.fits)


def considered(rule: Rule, call: PolicyCall) -> Considered:
    """Look at one rule for a call."""
    if not rule.is_about(call.tool):
        return Considered(rule, is_about=False, fits=False, why=_why_not_about(rule, call))
    why = _why_not_for(rule, call)
    if why is not None:
        return Considered(rule, is_about=True, fits=False, why=why)
    unknown: list[str] = []
    for condition in rule.when:
        answer = judge(condition, call.arguments)
        if answer is Judgement.NO or (answer is Judgement.UNKNOWN and rule.decision is Verdict.ALLOW):
            word = "does not hold" if answer is Judgement.NO else "cannot be judged, and an allow needs to be sure"
            return Considered(rule, is_about=True, fits=False, why=f"{condition} {word}")
        unknown += [f"{condition} cannot be judged, which counts against the call"] if answer is Judgement.UNKNOWN else []
    return Considered(rule, is_about=True, fits=True, why="; ".join(unknown) or "everything that it names fits")


def _why_not_about(rule: Rule, call: PolicyCall) -> str:
    tool, fit = call.tool, rule.compiled
    if fit.tools is not None and not fit.tools.have(tool.name):
        return f"the tool is none of {', '.join(rule.tools)}"
    if fit.kinds is not None and tool.kind not in fit.kinds:
        return f"the tool's kind {tool.kind!r} is none of {', '.join(rule.kinds)}"
    return f"the tool has none of the tags {', '.join(rule.tags)}"


def _why_not_for(rule: Rule, call: PolicyCall) -> str | None:
    fit = rule.compiled
    if fit.roles is not None and fit.roles.isdisjoint(call.caller.roles):
        return f"the caller has none of the roles {', '.join(rule.roles)}"
    if fit.callers is not None and not fit.callers.have(call.caller.subject):
        return f"the caller is none of {', '.join(rule.callers)}"
    if fit.labels is not None and fit.labels.isdisjoint(call.labels):
        return f"the run has read nothing with a label of {', '.join(rule.labels)}"
    if rule.time is not None and not rule.time.holds(call.now):
        return "it is not the time for it"
    return None
