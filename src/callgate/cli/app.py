"""The commands: `list`, `schema`, `call` and `check`. Tables for people, `--json` for programs.

Exit codes: 0 done; 1 `check` found something; 2 a wrong command line or target; 3 the call was refused before the tool ran
(its name, its arguments, or its right to run); 4 the tool was called and failed.
"""

import asyncio
import codecs
import io
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from callgate.cli.agent import resume, run
from callgate.cli.findings import Finding, findings
from callgate.cli.interrupts import run_stoppable
from callgate.cli.policy import policy_app
from callgate.cli.shared import AsJson, Log, Target, add_log_handler, emit, refuse
from callgate.cli.stored import approvals_app, log_app, runs
from callgate.cli.tables import findings_table, receipt_line, tools_table
from callgate.cli.targets import TargetError, load_registry
from callgate.cli.workflow import workflow_app
from callgate.cli.writing import for_programs, for_stdout, lines
from callgate.errors import InvalidInputError, ToolDefinitionError, ToolDeniedError, ToolNotFoundError, ToolNotOfferedError
from callgate.registry import ToolRegistry
from callgate.tools.dialects import DIALECTS, Dialect, render
from callgate.tools.tool import Tool
from callgate.values import UNSET, ExecutionOptions, ToolCallRecord, ToolReply

__all__ = ("ExitCode", "app")


class ExitCode(IntEnum):
    """Say what an exit code of `callgate` means."""

    DONE = 0
    FOUND = 1
    WRONG_USE = 2
    CALL_REFUSED = 3
    TOOL_FAILED = 4


app = typer.Typer(
    name="callgate",
    epilog="TARGET is file.py, file.py:attribute, module or module:attribute: a ToolRegistry, tools, or functions with @tool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"callgate {version('callgate')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Show the log on stderr, with the exception of a tool that failed.")] = False,
) -> None:
    """Look at tools, call them as a model would, let an agent or a workflow use them, and decide what waits for a person."""
    add_log_handler(logging.StreamHandler() if log else logging.NullHandler())
    codecs.register_error(_ESCAPED, _json_escape)
    # What is no text on stdin is refused as an argument that is none.
    for stream, errors in ((sys.stdout, _ESCAPED), (sys.stderr, _ESCAPED), (sys.stdin, "surrogateescape")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


_ESCAPED: Final = "callgate.escaped"


def _json_escape(error: UnicodeError) -> tuple[str, int]:
    r"""Write what the output's encoding lacks as \uXXXX, which JSON reads back; `backslashreplace` writes \xXX, too."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


@app.command("list")
def list_tools(target: Target, as_json: AsJson = False) -> None:
    """List the tools."""
    tools = _load(target).list()
    emit([_tool_row(tool) for tool in tools] if as_json else tools_table(tools))


@app.command()
def schema(
    target: Target,
    dialect: Annotated[str | None, typer.Option(help=f"One of {', '.join(DIALECTS)}; without it, the neutral form.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the tools' definitions as JSON, in the form of a provider; what it cannot hold is named on stderr."""
    tools = _load(target).list()
    shown = [_neutral(tool) for tool in tools] if dialect is None else _rendered(tools, _dialect(dialect))
    sys.stdout.write(for_programs(shown, indent=None if as_json else 2) + "\n")


@app.command()
def call(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", show_default=False)],
    arguments: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Its arguments as a JSON object; - reads them from stdin.")
    ] = "",
    timeout_s: Annotated[
        float | None, typer.Option("--timeout-s", min=0, help="A time limit in seconds, before the tool's.")
    ] = None,
    as_json: AsJson = False,
    _log: Log = False,
) -> None:
    """Call a tool as a model would: its text on stdout, the receipt on stderr.

    Exits with 3 when the call was refused before the tool ran, with 4 when the tool failed.
    """
    raw = sys.stdin.read() if arguments == "-" else arguments
    options = ExecutionOptions(timeout_s=UNSET if timeout_s is None else timeout_s)
    registry = _load(target)
    with asyncio.Runner() as runner:
        reply = run_stoppable(runner, registry.answer(name, raw, options=options))
    if as_json:
        emit(_reply_row(reply))
    else:
        stream = sys.stderr if reply.is_error else sys.stdout
        stream.write(f"{for_stdout(reply.text, stream)}\n")
        Console(stderr=True, soft_wrap=True).print(receipt_line(reply.invocation))
    raise typer.Exit(_exit_code(reply))


@app.command()
def check(
    target: Target,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check definitions, descriptions, and the names and schemas in each provider's form; exit with 1 for an error."""
    found, count = _checked(target)
    if as_json:
        emit([asdict(finding) for finding in found])
    else:
        emit(
            findings_table(found) if found else Text(f"{count} {'tool' if count == 1 else 'tools'}, nothing found", style="green")
        )
    wrong = {"error", "warning"} if strict else {"error"}
    raise typer.Exit(ExitCode.FOUND if any(finding.level in wrong for finding in found) else ExitCode.DONE)


app.add_typer(policy_app, name="policy")
app.add_typer(approvals_app, name="approvals")
app.add_typer(log_app, name="log")
app.add_typer(workflow_app, name="workflow")
app.command()(runs)
app.command()(run)
app.command()(resume)


def _load(target: str) -> ToolRegistry:
    try:
        return load_registry(target)
    except (TargetError, ToolDefinitionError) as error:
        refuse(error.user_message)


def _checked(target: str) -> tuple[list[Finding], int]:
    """Give what `check` finds, and how many tools there are; a definition that is refused is a finding."""
    try:
        tools = load_registry(target).list()
    except (TargetError, ToolDefinitionError) as error:
        cause = error.__cause__ if isinstance(error, TargetError) else error
        if not isinstance(cause, ToolDefinitionError):
            refuse(error.user_message)
        return [Finding("error", cause.tool, cause.parameter or "definition", cause.reason)], 0
    return findings(tools), len(tools)


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        refuse(f"there is no dialect {name!r}; there are {', '.join(DIALECTS)}")
    return name


def _rendered(tools: Sequence[Tool[Any, Any]], dialect: Dialect) -> list[dict[str, Any]]:
    try:
        rendered = render(tools, dialect)
    except ToolDefinitionError as error:
        refuse(error.user_message)
    for skipped in rendered.skipped:
        sys.stderr.write(f"callgate: left out {skipped.name!r}: {lines(skipped.reason)}\n")
    return rendered.tools


def _neutral(tool: Tool[Any, Any]) -> dict[str, object]:
    return {
        "name": tool.name,
        "kind": tool.options.kind,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }


def _tool_row(tool: Tool[Any, Any]) -> dict[str, object]:
    options = tool.options
    limits = {
        "timeout_s": None if options.timeout_s is UNSET else options.timeout_s,
        "max_output_bytes": None if options.max_output_bytes is UNSET else options.max_output_bytes,
    }
    return {**_neutral(tool), "run_in": options.run_in, "tags": sorted(options.tags), **limits}


def _reply_row(reply: ToolReply) -> dict[str, object]:
    receipt = {field: getattr(reply.invocation, field) for field in ToolCallRecord.__dataclass_fields__}
    return {"text": reply.text, "is_error": reply.is_error, "blocks": len(reply.blocks), "receipt": receipt}


def _exit_code(reply: ToolReply) -> ExitCode:
    """Tell refusals from failures by the error's type: a tool may answer with any status of its own."""
    if not reply.is_error:
        return ExitCode.DONE
    refusals = (InvalidInputError, ToolNotFoundError, ToolNotOfferedError, ToolDeniedError)
    return ExitCode.CALL_REFUSED if isinstance(reply.error, refusals) else ExitCode.TOOL_FAILED
