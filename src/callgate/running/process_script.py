"""The parent's `__main__` in a worker: named by the parent, loaded by the worker when a job needs it.

`multiprocessing` runs the main script again in every child. Here a worker does so only when something that it unpickles
is defined in the script, under the same name as there (`__mp_main__`), so that a script's guard works as it is known.
"""

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from callgate.errors import UsageError

__all__ = ("ALIAS", "Script", "adopt_script", "find_script", "load_script", "refuse_while_loading")

ALIAS: Final = "__mp_main__"

Script = tuple[str, str]  # ("module", its name) or ("path", of its file)


class _State:
    """Hold what this process knows of the script; a worker has adopted its parent's."""

    adopted = False
    script: Script | None = None
    loading = False
    loaded = False


def adopt_script(script: Script | None) -> None:
    """Take over the parent's script, in a worker, without loading it."""
    _State.adopted, _State.script = True, script


def find_script() -> Script | None:
    """Name the script that this process's workers share with it, or give None when no file holds it (`python -c`)."""
    if _State.adopted:
        return _State.script
    main = sys.modules["__main__"]
    sys.modules.setdefault(ALIAS, main)  # results defined in the script come back under this name
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return "module", spec.name
    file = getattr(main, "__file__", None)
    return ("path", str(Path(file).absolute())) if isinstance(file, str) and Path(file).exists() else None


def load_script() -> None:
    """Make the adopted script the `__main__` of this worker; do nothing when it is already.

    Raises:
        UsageError: when no file holds it.
        Exception: whatever the script raises when it is run.
    """
    if _State.loaded or not _State.adopted:
        return
    if _State.script is None:
        raise UsageError("what is defined in a shell or in `python -c` cannot be loaded by a worker process; put it in a file")
    _State.loading = True
    try:
        found = _run(*_State.script)
    finally:
        _State.loading = False
    module = ModuleType(ALIAS)
    module.__dict__.update(found)
    sys.modules["__main__"] = sys.modules[ALIAS] = module
    _State.loaded = True


def _run(kind: str, where: str) -> dict[str, Any]:
    return runpy.run_path(where, run_name=ALIAS) if kind == "path" else runpy.run_module(where, run_name=ALIAS, alter_sys=True)


def refuse_while_loading() -> None:
    """Refuse to start workers from a script that a worker is loading: each worker would start more of them.

    Raises:
        UsageError: when this process is such a worker; nothing was started.
    """
    if _State.loading:
        raise UsageError(
            "a worker process loads the main script and would start workers itself;"
            ' put the calls under `if __name__ == "__main__":`'
        )
