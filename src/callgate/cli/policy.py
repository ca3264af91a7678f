"""`callgate policy`: check a policy against tools, and explain how it judges a call."""

import time
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Annotated, cast

import typer
from rich.table import Table
from rich.text import Text

from callgate.cli.shared import AsJson, Target, emit, refuse, registry_of
from callgate.cli.writing import lines, said
from callgate.errors import ApprovalRequiredError, PolicyError, ToolError, UsageError
from callgate.gate import KeepContent
from callgate.gate.gated import GatedCall, gated_call
from callgate.gate.judge import INPUT_RULE, decision_for, policy_call, policy_decision
from callgate.policy import CedarPolicy, Considered, Decision, RulePolicy
from callgate.registry import ToolRegistry
from callgate.values import Caller, ToolCall

__all__ = ("policy_app",)

policy_app = typer.Typer(help="Check a policy, and explain how it judges a call.", no_args_is_help=True)

File = Annotated[
    str, typer.Argument(metavar="FILE", help="A TOML file of rules, or a .cedar file of policies.", show_default=False)
]
FOUND = 1
_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}


def _load(file: str, registry: ToolRegistry | None) -> RulePolicy | CedarPolicy:
    tools = None if registry is None else registry.list()
    try:
        return CedarPolicy.load(file, tools=tools) if file.endswith(".cedar") else RulePolicy.load(file, tools)
    except PolicyError as error:
        typer.echo(lines(error.user_message), err=True)
        raise typer.Exit(FOUND) from error
    except UsageError as error:
        refuse(error.user_message)


@policy_app.command()
def check(
    file: File,
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="The tools that the rules are about.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load a policy, and check that the tools, kinds, tags and arguments in it exist; exit with 1 when not."""
    policy = _load(file, None if target is None else registry_of(target))
    budgets = len(policy.budgets) if isinstance(policy, RulePolicy) else 0
    if as_json:
        emit({"rules": len(policy.rules), "budgets": budgets, "digest": policy.digest})
        return
    emit(Text(f"{len(policy.rules)} rules and {budgets} budgets, nothing found", style="green"))


@policy_app.command()
def explain(
    file: File,
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", show_default=False)],
    arguments: Annotated[str, typer.Argument(metavar="[JSON]", help="Its arguments.")] = "",
    caller: Annotated[str, typer.Option(help="On whose behalf.")] = "somebody",
    role: Annotated[list[str] | None, typer.Option(help="A role of the caller; may be repeated.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="What the run has read; may be repeated.")] = None,
    at: Annotated[
        str | None, typer.Option(help="The moment, as 2030-01-31T12:00:00Z or in seconds since the epoch.", show_default="now")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List the rules about other tools as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell which rule decides a call, and why the others do not; also whether its tool wants an approval."""
    registry = registry_of(target)
    policy = _load(file, registry)
    gated = _call_of(registry, ToolCall(name, arguments), caller, tuple(role or ()))
    call = policy_call(gated, _moment_of(at), frozenset(label or ()))
    considered = () if isinstance(policy, CedarPolicy) else policy.explain(call).considered
    decision = decision_for(gated, call, cast("Decision", policy_decision(policy, call)))
    _show(decision, tuple(each for each in considered if every or each.is_about), as_json=as_json)


def _call_of(registry: ToolRegistry, call: ToolCall, caller: str, roles: tuple[str, ...]) -> GatedCall:
    """Read a call as a gate does, with what the tool's input parser asks for."""
    try:
        gated = gated_call(call, Caller(caller, roles), "", KeepContent(), {"run_id": "(explained)"})
        try:
            registry.read(gated)
        except ApprovalRequiredError as asked:
            gated.approved, gated.asks = True, Decision.ask(asked.reason, rules=(INPUT_RULE,))
            registry.read(gated)
    except (ToolError, UsageError) as error:
        refuse(error.user_message)
    return gated


def _moment_of(text: str | None) -> float:
    if text is None:
        return time.time()
    try:
        moment = _moment_in(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None or not MINYEAR < moment.year < MAXYEAR:  # a time zone must not lead out of what a calendar has
        refuse(f"--at takes a moment such as 2030-01-31T12:00:00Z, or seconds since the epoch, not {text!r}")
    return moment.timestamp()


def _moment_in(text: str) -> datetime:
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _show(decision: Decision, shown: tuple[Considered, ...], *, as_json: bool) -> None:
    word = decision.verdict.name
    if as_json:
        rows = [{"id": each.rule.id, "says": _says(each, decision), "why": each.why} for each in shown]
        facts = {"decision": word.lower(), "reason": decision.reason, "rules": list(decision.rules), "considered": rows}
        counters = [{"counter": budget.counter, "limit": budget.limit} for budget in decision.budgets]
        emit({**facts, "budgets": counters})
        return
    by = f" by {', '.join(decision.rules)}" if decision.rules else ""
    emit(said(f"{word}{by}" + (f": {decision.reason}" if decision.reason else ""), _STYLES[word.lower()]))
    if shown:
        emit(_table(shown, decision))


def _says(each: Considered, decision: Decision) -> str:
    if not each.is_about:
        return "not about it"
    if not each.fits:
        return "does not fit"
    return "decides" if each.rule.id in decision.rules else "fits"


def _table(shown: tuple[Considered, ...], decision: Decision) -> Table:
    table = Table(header_style="bold")
    for column in ("rule", "decision", "says", "why"):
        table.add_column(column, overflow="fold")
    for each in shown:
        cells = (each.rule.id, each.rule.decision.name.lower(), _says(each, decision), each.why)
        table.add_row(*(said(cell) for cell in cells))
    return table
