"""Which process this is, and whether the process of another writer still lives."""

import os
import socket
import time
from pathlib import Path

from sqlalchemy import RowMapping

__all__ = ("born", "host", "is_gone")


def host() -> str:
    """Name this machine and, on Linux, its space of process ids: within both a pid means one process."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()


def born(pid: int) -> str:
    """Tell when a process was born, in a form that tells two processes of one pid apart; "" when it is gone.

    Where the system does not tell, a process that lives is told by "alive".
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return _alive(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _alive(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"


def is_gone(writer: RowMapping, *, stale_after_s: float) -> bool:
    """Tell whether a writer's process has ended, or was silent for so long (seconds)."""
    if writer["closed"] or time.time() - writer["beat_at"] > stale_after_s:
        return True
    return bool(writer["host"] == host()) and born(writer["pid"]) != writer["born"]
