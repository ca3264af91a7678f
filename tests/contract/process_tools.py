"""Tools that run in worker processes, which import this file."""

import os
import subprocess
import sys
from pathlib import Path

from callgate import ToolContext, tool

ENDLESS = 10**15


@tool(run_in="process", kind="read")
def whereabouts() -> int:
    """Tell the number of the process that the tool runs in."""
    return os.getpid()


@tool(run_in="process", timeout_s=0.5)
def spin(context: ToolContext) -> int:
    """Tell the number of the process, then hold it in one call of C code that hears no signal handler of Python."""
    context.progress(os.getpid())
    return sum(range(ENDLESS))


@tool(run_in="process", timeout_s=None)
def spin_without_limit(context: ToolContext) -> int:
    """Do the same without a limit of its own."""
    context.progress(os.getpid())
    return sum(range(ENDLESS))


@tool(run_in="process", timeout_s=None)
def spin_with_a_child(context: ToolContext) -> int:
    """Start a child in a session of its own, tell both numbers, and hold the process."""
    child = subprocess.Popen([sys.executable, "-c", f"sum(range({ENDLESS}))"], start_new_session=True)
    context.progress([os.getpid(), child.pid])
    return sum(range(ENDLESS))


@tool(run_in="process", timeout_s=0.5)
def write_when_over(path: str, context: ToolContext) -> None:
    """Hold the process far beyond the limit, then leave a mark."""
    context.progress(os.getpid())
    sum(range(ENDLESS))
    Path(path).write_text("it went on")


@tool(run_in="process")
def crash() -> None:
    """End the process without a word."""
    os._exit(11)


@tool(run_in="process")
def leak() -> None:
    """Raise what no model may read."""
    raise ValueError("password=hunter2")
