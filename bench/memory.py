"""Measure the memory of a process that makes a million calls."""

import json
import subprocess
import sys
from typing import Any

from bench.million import MARKS
from bench.report import Claim, Section, Table
from bench.timing import Options

__all__ = ("run",)

_MIB = 1 << 20
_FLAT_MIB = 1.0
_NOTE = (
    "One process, one registry; of 100 calls 96 succeed at once, one waits, one is refused for a wrong type, one for broken JSON,"
    " one for its name."
)


async def run(options: Options) -> Section:
    """Run the calls in a process of their own and compare its memory after 10,000 calls and at the end."""
    calls = MARKS[1] if options.quick else MARKS[-1]
    command = [sys.executable, "-m", "bench.million", str(calls)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221 - nothing else runs on this loop
    marks: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    grown_mib = (marks[-1]["resident_bytes"] - marks[0]["resident_bytes"]) / _MIB
    rows = tuple((f"{mark['calls']:,}", f"{mark['resident_bytes'] / _MIB:.1f} MiB", f"{mark['seconds']:.2f} s") for mark in marks)
    return Section(
        "A million calls",
        (Table("Resident memory", ("after calls", "memory", "since the start"), rows, _NOTE),),
        (Claim.at_most(f"memory grown from call 10,000 to call {calls:,}", _FLAT_MIB, grown_mib, "MiB"),),
    )
