"""The `callgate` command: look at tools, call one, check their definitions. It needs the extra `cli`."""

import os
import sys
from pathlib import Path

__all__ = ("main",)


def main() -> None:
    """Run the command line of this process, or say how to install what it needs and exit with 2."""
    _open_what_is_closed()
    try:
        from callgate.cli.app import app  # noqa: PLC0415 - typer and rich are an optional extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"typer", "rich"}:
            raise
        advice = "install callgate with its extra cli, for example: pip install '/path/to/clone[cli]'"
        sys.stderr.write(f"callgate: the command line needs {error.name}; {advice}\n")
        raise SystemExit(2) from error
    app(prog_name="callgate")


def _open_what_is_closed() -> None:
    """Give a command an empty stream where the one of its process was closed: Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open as long as the process
