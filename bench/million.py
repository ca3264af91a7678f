"""Make a million calls in one process and print its memory on the way, one JSON object a line.

Run as a process of its own, so that the memory is that of callgate and nothing else: `python -m bench.million 1000000`.
"""

import asyncio
import gc
import json
import logging
import os
import resource
import sys
from pathlib import Path
from time import perf_counter

from bench.gate import LIMIT_S, registry_of
from bench.workloads import ARGUMENTS, add, add_after_yielding
from callgate import ToolError, ToolRegistry

__all__ = ("MARKS",)

MARKS = (10_000, 100_000, 1_000_000)
_ROUND = (("add", ARGUMENTS),) * 96 + (
    ("add_after_yielding", ARGUMENTS),
    ("add", '{"a": "two"}'),
    ("add", '{"a": 2'),
    ("subtract", ARGUMENTS),
)


def _resident_bytes() -> int:
    """Give the resident memory now, or its peak where the system tells no more."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def _call_all(registry: ToolRegistry, upto: int) -> None:
    begun = perf_counter()
    for done in range(0, upto, len(_ROUND)):
        if done in MARKS:
            _print_mark(done, begun)
        for name, text in _ROUND:
            try:
                await registry.ainvoke(name, text)
            except ToolError:
                continue
    _print_mark(upto, begun)


def _print_mark(done: int, begun: float) -> None:
    seconds = perf_counter() - begun
    gc.collect()
    print(json.dumps({"calls": done, "resident_bytes": _resident_bytes(), "seconds": seconds}), flush=True)


if __name__ == "__main__":
    logging.basicConfig(handlers=[logging.NullHandler()])
    asyncio.run(_call_all(registry_of([add, add_after_yielding], timeout_s=LIMIT_S), int(sys.argv[1])))
