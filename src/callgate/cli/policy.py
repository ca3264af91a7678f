"""`callgate policy`: check a policy against tools, and explain how it judges a call."""

import time
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from callgate.cli.shared import AsJson, Target, emit, refuse, registry_of
from callgate.errors import PolicyError, ToolError
from callgate.policy import PolicyCall, Rule, RulePolicy
from callgate.tools.plain_arguments import plain_arguments
from callgate.values import Caller

__all__ = ("policy_app",)

policy_app = typer.Typer(help="Check a policy, and explain how it judges a call.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A TOML file of rules.", show_default=False)]
FOUND = 1


def _load(file: str, target: str | None) -> RulePolicy:
    try:
        return RulePolicy.load(file, tools=None if target is None else registry_of(target).list())
    except PolicyError as error:
        typer.echo(error.user_message, err=True)
        raise typer.Exit(FOUND) from error


@policy_app.command()
def check(
    file: File,
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="The tools that the rules are about.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load a policy, and check that the tools, kinds, tags and arguments in it exist; exit with 1 when not."""
    policy = _load(file, target)
    counts = {"rules": len(policy.rules), "budgets": len(policy.budgets), "digest": policy.digest}
    emit(
        counts if as_json else Text(f"{len(policy.rules)} rules and {len(policy.budgets)} budgets, nothing found", style="green")
    )


@policy_app.command()
def explain(
    file: File,
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", show_default=False)],
    arguments: Annotated[str, typer.Argument(metavar="[JSON]", help="Its arguments.")] = "",
    caller: Annotated[str, typer.Option(help="On whose behalf.")] = "somebody",
    role: Annotated[list[str] | None, typer.Option(help="A role of the caller; may be repeated.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="What the run has read; may be repeated.")] = None,
    at: Annotated[float | None, typer.Option(help="The moment, in seconds since the epoch.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell which rule decides a call, and why the others about its tool do not."""
    registry, policy = registry_of(target), _load(file, target)
    try:
        call = registry.read(name, arguments, approved=True)
    except ToolError as error:
        refuse(error.user_message)
    judged = PolicyCall(
        call.tool,
        plain_arguments(call.tool, call.arguments, call.text),
        Caller(caller, tuple(role or ())),
        time.time() if at is None else at,
        run_id="(explained)",
        labels=frozenset(label or ()),
    )
    explained = policy.explain(judged)
    decision = explained.decision
    rows = [(rule, "decides" if rule.id in decision.rules else "fits") for rule in explained.fitting]
    rows += [(rule, "does not fit") for rule in explained.others]
    if as_json:
        facts = {"decision": decision.verdict.name.lower(), "reason": decision.reason, "rules": list(decision.rules)}
        emit({**facts, "considered": [{"id": rule.id, "says": word} for rule, word in rows]})
        return
    emit(Text(f"{decision.verdict.name} by {', '.join(decision.rules)}" + (f": {decision.reason}" if decision.reason else "")))
    emit(_table(rows))


def _table(rows: list[tuple[Rule, str]]) -> Table:
    table = Table(header_style="bold")
    for column in ("rule", "decision", "says", "when"):
        table.add_column(column, overflow="fold")
    for rule, word in rows:
        cells = (rule.id, rule.decision.name.lower(), word, "; ".join(map(str, rule.when)))
        table.add_row(*(Text(cell) for cell in cells))
    return table
