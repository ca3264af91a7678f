"""Policies in Cedar: permitted runs, permitted with an approval asks, everything else is denied."""

import sys

import pytest

from callgate import Caller, Denied, Pending, PolicyError, Succeeded, ToolCall, UsageError, tool
from callgate.policy import CedarPolicy
from callgate.testing import check_policy, gate_for

POLICIES = """
permit(principal, action == Action::"call", resource) when { resource.kind == "read" };
permit(principal in Role::"agent", action == Action::"call", resource == Tool::"refund")
  when { context.arguments.amount <= 100 && !context.labels.contains("untrusted") };
permit(principal in Role::"agent", action == Action::"call_with_approval", resource == Tool::"refund");
forbid(principal == Caller::"mallory", action, resource);
"""
ALICE = Caller("alice", ("agent",))


@tool(kind="read", emits=["untrusted"])
async def look() -> str:
    return "x"


@tool(kind="write")
async def refund(amount: float, note: str | None = None) -> str:
    return f"refunded {amount:g}"


@pytest.mark.parametrize(
    ("amount", "caller", "kind"),
    [
        (100, ALICE, Succeeded),
        (101, ALICE, Pending),
        (99.5, ALICE, Pending),  # Cedar has no fractions: what it cannot compare is not permitted as it is
        ("50", ALICE, Succeeded),  # the parsed number is judged
        (5, Caller("bob"), Denied),
        (5, Caller("mallory", ("agent",)), Denied),
    ],
)
async def test_a_call_runs_asks_or_is_denied_as_the_policies_say(amount, caller, kind):
    gate = gate_for(look, refund, policy=CedarPolicy(POLICIES))
    outcome = await gate.call(ToolCall("refund", {"amount": amount}), caller=caller)
    assert type(outcome) is kind


async def test_what_a_run_has_read_is_in_the_context():
    gate = gate_for(look, refund, policy=CedarPolicy(POLICIES))
    place = {"caller": ALICE, "run_id": "r"}
    assert isinstance(await gate.call(ToolCall("refund", {"amount": 1}, "1"), **place), Succeeded)
    assert isinstance(await gate.call(ToolCall("look", None, "2"), **place), Succeeded)
    assert isinstance(await gate.call(ToolCall("refund", {"amount": 1}, "3"), **place), Pending)


async def test_it_passes_the_suite_of_policies():
    calls = [("refund", {"amount": amount}) for amount in (1, 100, 500)]
    await check_policy(CedarPolicy(POLICIES), [look, refund], calls, caller=ALICE, now=0)


def test_a_text_that_is_no_cedar_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="no Cedar"):
        CedarPolicy("permit(everything);")
    with pytest.raises(PolicyError, match="cannot be read"):
        CedarPolicy.load(tmp_path / "none.cedar")
    (tmp_path / "p.cedar").write_text(POLICIES)
    assert isinstance(CedarPolicy.load(tmp_path / "p.cedar"), CedarPolicy)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(UsageError, match="extra cedar"):
        CedarPolicy(POLICIES)
