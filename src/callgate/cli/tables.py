"""Lay out what the commands print for people."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from callgate.cli.findings import Finding
from callgate.cli.writing import line, said
from callgate.tools.tool import Tool
from callgate.values import UNSET, ToolCallRecord

__all__ = ("findings_table", "receipt_line", "tools_table")

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def tools_table(tools: Sequence[Tool[Any, Any]]) -> RenderableType:
    """List tools with the first line of what they say of themselves; required parameters have a star."""
    table = _table("name", "kind", "parameters", "runs", "limit", "description")
    for tool in tools:
        limit = tool.options.timeout_s
        seconds = "default" if limit is UNSET else "none" if limit is None else f"{limit:g} s"
        first_line = (tool.description or "").partition("\n")[0]
        _add(table, tool.name, tool.options.kind, _parameters(tool), tool.options.run_in, seconds, first_line)
    return table


def findings_table(findings: Iterable[Finding]) -> RenderableType:
    """List findings, each in the colour of its level."""
    table = _table("level", "tool", "subject", "finding")
    for finding in findings:
        _add(table, finding.level, finding.tool, finding.subject, finding.text, style=_STYLES[finding.level])
    return table


def receipt_line(receipt: ToolCallRecord) -> Text:
    """Write a receipt on one line."""
    outcome = f"{receipt.status} {receipt.error_status} {receipt.error_code}" if receipt.error_code else receipt.status
    changes = "".join(f"; {change}" for change in (*receipt.repairs, *receipt.notes))
    sizes = f"{receipt.input_bytes} bytes in, {receipt.output_bytes} out"
    text = f"{receipt.tool} {outcome} in {receipt.duration_ms:.1f} ms, {sizes}{changes} ({receipt.invocation_id})"
    return Text(line(text), style="dim")


def _parameters(tool: Tool[Any, Any]) -> str:
    required = tool.input_schema.get("required", ())
    return ", ".join(f"{name}*" if name in required else name for name in tool.input_schema.get("properties", {}))


def _table(*columns: str) -> Table:
    table = Table(header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: str, style: str = "") -> None:
    table.add_row(*(said(cell, style) for cell in cells))
