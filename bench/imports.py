"""Measure imports as whole processes, and count the packages that each library needs."""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory

from bench.gate import CALLGATE
from bench.machine import required_packages
from bench.report import Claim, Section, Table, comparison, duration, ratio
from bench.subjects import Subject, peers
from bench.timing import Contender, Measured, Options, compare

__all__ = ("run",)

_TARGET = 1.5
_MOST_PACKAGES = 5
_PYDANTIC = "from pydantic import BaseModel, TypeAdapter"
_NOTE = (
    "Processor time of whole processes: the start of the interpreter is in every figure. Compiled bytecode is there before the"
    " first round."
)


async def run(options: Options) -> Section:
    """Compare `import callgate` with pydantic's import, and list what the peers take."""
    found, missing = peers()
    subjects = [CALLGATE, *{subject.import_statement: subject for subject in found}.values()]
    timed = replace(options, clock=_processor_s_of_children)
    fewer = replace(timed, rounds=3 if options.quick else 7)
    with TemporaryDirectory() as bytecode:
        process = partial(_process, bytecode)
        pair = await compare([process(_PYDANTIC), process(CALLGATE.import_statement)], timed)
        statements = [_PYDANTIC, "pass", *[subject.import_statement for subject in subjects]]
        everyone = await compare([process(statement) for statement in statements], fewer)
    return Section(
        "Import",
        (comparison("Paired", pair, _NOTE), _table(subjects, everyone)),
        (
            Claim.at_most("import callgate / import of pydantic", _TARGET, pair[1].ratio),
            _packages_claim(),
        ),
        tuple(missing),
    )


def _process(bytecode: str, statement: str) -> Contender:
    """Import in a process of its own, all of whose bytecode is in one folder: the first run, which is not counted, fills it.

    What an installer has compiled already, and what a setting against writing bytecode keeps from being compiled, would
    decide the comparison otherwise.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}

    async def batch(count: int) -> None:
        for _ in range(count):
            subprocess.run([sys.executable, "-c", statement], env=environment, check=True)  # noqa: ASYNC221 - nothing else runs on this loop

    return Contender(statement, batch)


def _processor_s_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _packages_claim() -> Claim:
    required = required_packages(CALLGATE.distribution)
    target = f"≤ {_MOST_PACKAGES}"
    if required is None:
        return Claim("required packages", target, "unknown: callgate runs from its source and is not installed", None)
    return Claim(
        "required packages",
        target,
        f"{len(required.direct)} ({', '.join(required.direct)})",
        len(required.direct) <= _MOST_PACKAGES,
    )


def _table(subjects: Sequence[Subject], measured: Sequence[Measured]) -> Table:
    packages = ["", "", *[_packages(subject.distribution) for subject in subjects]]
    rows = tuple(
        (each.contender.name, duration(each.call_s), ratio(each.ratio), count)
        for each, count in zip(measured, packages, strict=True)
    )
    return Table("Everyone", ("statement", "process", "to pydantic", "required packages: direct / all"), rows)


def _packages(distribution: str) -> str:
    required = required_packages(distribution)
    return "not installed" if required is None else f"{len(required.direct)} / {len(required.all)}"
