"""Policies: what a model is offered, and what may run, has to be asked about, or is denied."""

from callgate.policy.budgets import BudgetRule
from callgate.policy.cedar import CedarPolicy
from callgate.policy.conditions import Condition
from callgate.policy.decision import Budget, Decision, OfferRequest, PolicyCall, Verdict
from callgate.policy.explanation import Considered, Explanation
from callgate.policy.protocol import AllowAll, ToolPolicy
from callgate.policy.rule_policy import RulePolicy
from callgate.policy.rules import Rule
from callgate.policy.times import TimeWindow

__all__ = (
    "AllowAll",
    "Budget",
    "BudgetRule",
    "CedarPolicy",
    "Condition",
    "Considered",
    "Decision",
    "Explanation",
    "OfferRequest",
    "PolicyCall",
    "Rule",
    "RulePolicy",
    "TimeWindow",
    "ToolPolicy",
    "Verdict",
)
