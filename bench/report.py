"""Write what was measured: as plain text for a terminal and as Markdown for the reference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.timing import Measured

__all__ = (
    "Claim",
    "Section",
    "Table",
    "comparison",
    "duration",
    "ratio",
    "section_markdown",
    "section_text",
    "spread",
    "table_markdown",
    "table_text",
)

_TIMES = "×"  # noqa: RUF001 - the sign itself, as in the table of targets
_MICRO = 1e-6
_MILLI = 1e-3


@dataclass(frozen=True, slots=True)
class Claim:
    """Set a measured figure beside its target; `met` is None for a figure without one."""

    what: str
    target: str
    measured: str
    met: bool | None

    @classmethod
    def at_most(cls, what: str, limit: float, measured: float, unit: str = _TIMES) -> "Claim":
        """State that `measured` is to be no more than `limit`."""
        return cls(what, f"≤ {limit:g} {unit}", f"{measured:.2f} {unit}", measured <= limit)


@dataclass(frozen=True, slots=True)
class Table:
    """Hold rows of text under their column heads; `note` says how to read them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Hold the outcome of one section: its tables, the figures that have a target, and who is missing and why."""

    title: str
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...] = ()
    missing: tuple[str, ...] = ()


def duration(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    if seconds < _MILLI:
        return f"{seconds / _MICRO:.2f} µs"
    if seconds < 1:
        return f"{seconds / _MILLI:.2f} ms"
    return f"{seconds:.2f} s"


def ratio(value: float) -> str:
    """Write a ratio with as many digits as it can bear."""
    return f"{value:.2f} {_TIMES}" if value < 10 else f"{value:.0f} {_TIMES}"


def spread(measured: Measured) -> str:
    """Write where the middle half of the rounds lay."""
    return f"{ratio(measured.low)} to {ratio(measured.high)}"


def comparison(title: str, measured: Sequence[Measured], note: str = "") -> Table:
    """Lay out a comparison, its reference first."""
    rows = tuple(
        (
            each.contender.name,
            duration(each.call_s),
            ratio(each.ratio),
            spread(each),
            each.contender.about,
        )
        for each in measured
    )
    return Table(title, ("who", "one call", "to the first", "middle half of rounds", "how"), rows, note)


def table_text(table: Table) -> str:
    """Write a table with aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(table.columns, *table.rows, strict=True)]
    lines = [table.title, *(_aligned(row, widths) for row in (table.columns, *table.rows))]
    lines.insert(2, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, *([table.note] if table.note else [])])


def table_markdown(table: Table) -> str:
    """Write a table as Markdown."""
    rule = tuple("---" for _ in table.columns)
    lines = ["| " + " | ".join(row) + " |" for row in (table.columns, rule, *table.rows)]
    note = f"\n\n{table.note}" if table.note else ""
    return f"**{table.title}**\n\n" + "\n".join(lines) + note


def section_text(section: Section) -> str:
    """Write a section for the terminal."""
    heads = [f"== {section.title} =="]
    return "\n\n".join([*heads, *(table_text(table) for table in section.tables), *_missing(section.missing)])


def section_markdown(section: Section) -> str:
    """Write a section for the reference."""
    heads = [f"## {section.title}"]
    return "\n\n".join([*heads, *(table_markdown(table) for table in section.tables), *_missing(section.missing)])


def _aligned(row: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _missing(missing: Sequence[str]) -> list[str]:
    return ["Not measured: " + "; ".join(missing) + "."] if missing else []
