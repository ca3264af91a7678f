"""Run the sections, print them, and write the reference page after a full run."""

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from bench import (
    async_calls,
    catalog,
    flight,
    gated,
    imports,
    journal,
    memory,
    policies,
    process_calls,
    thread_calls,
    waiting,
    workflows,
)
from bench.machine import machine_facts, versions
from bench.report import Claim, Section, Table, section_markdown, section_text, table_markdown, table_text
from bench.timing import Options

_SECTIONS: dict[str, Callable[[Options], Awaitable[Section]]] = {
    "async": async_calls.run,
    "waiting": waiting.run,
    "thread": thread_calls.run,
    "process": process_calls.run,
    "catalog": catalog.run,
    "flight": flight.run,
    "gate": gated.run,
    "policy": policies.run,
    "journal": journal.run,
    "workflow": workflows.run,
    "memory": memory.run,
    "import": imports.run,
}
_PAGE = Path("docs/reference/benchmarks.md")
_QUICK = Options(quick=True, rounds=5, round_s=0.01)
_HOW_TO_READ = (
    "Every ratio compares two sides of the same run: all sides take turns in rounds, each round gives one ratio, and the median"
    " stands here. Ratios hold from machine to machine; the times beside them do not. Where nothing waits, time is processor"
    " time; where something does, it is the time on the wall. A figure that misses its target says so."
)


def main() -> None:
    """Run `python -m bench [SECTION ...] [--quick] [--write PATH]`."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure callgate beside its peers.")
    parser.add_argument(
        "sections", nargs="*", choices=[*_SECTIONS, []], metavar="SECTION", help=f"one or more of: {', '.join(_SECTIONS)}"
    )
    parser.add_argument("--quick", action="store_true", help="short rounds and small sizes, for development; nothing is written")
    parser.add_argument("--write", type=Path, help=f"where to write Markdown; without it a full run writes {_PAGE}")
    chosen = parser.parse_args()
    # Failures are logged as in any program, to a destination that costs nothing.
    logging.basicConfig(handlers=[logging.NullHandler()])
    sections = [_run(name, _QUICK if chosen.quick else Options()) for name in chosen.sections or _SECTIONS]
    print(f"\n{table_text(_figures(sections))}\n\n{machine_facts()}")
    full = not chosen.sections and not chosen.quick
    if path := chosen.write or (_PAGE if full else None):
        _write(path, sections)


def _run(name: str, options: Options) -> Section:
    begun = perf_counter()
    section = asyncio.run(_section(name, options))
    print(f"{section_text(section)}\n\n({name}: {perf_counter() - begun:.0f} s)\n", flush=True)
    return section


async def _section(name: str, options: Options) -> Section:
    return await _SECTIONS[name](options)


def _figures(sections: Sequence[Section]) -> Table:
    rows = tuple((claim.what, claim.target, claim.measured, _verdict(claim)) for section in sections for claim in section.claims)
    return Table("Figures to reach", ("what", "target", "measured", "reached"), rows)


def _verdict(claim: Claim) -> str:
    return {True: "yes", False: "no", None: "-"}[claim.met]


def _write(path: Path, sections: Sequence[Section]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(_page(sections)) + "\n", encoding="utf-8")
    print(f"written: {path}")


def _page(sections: Sequence[Section]) -> list[str]:
    measured_on = f"Written by `make bench` on {datetime.now(UTC):%Y-%m-%d}; do not edit. Machine: {machine_facts()}."
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    parts = ["# Benchmarks", measured_on, f"Versions: {named}.", _HOW_TO_READ, table_markdown(_figures(sections))]
    return [*parts, *(section_markdown(section) for section in sections)]


if __name__ == "__main__":
    main()
