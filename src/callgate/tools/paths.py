"""Name a place inside a JSON value: the keys and positions that lead to it, and how they are written for a reader."""

import json
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

__all__ = ("Step", "Steps", "write_path")

Step: TypeAlias = str | int
"""A key of an object, or a position (from 0) in a list."""

Steps: TypeAlias = tuple[Step, ...]

_PLAIN_KEY: Final = re.compile(r"[^\s.\[\]\"'\ud800-\udfff]{1,80}")
_CUT_KEY_AT: Final = 80
_LONGEST_PATH: Final = 400


def write_path(steps: Iterable[Step]) -> str:
    """Write keys and list positions as in code, `lines[2].price`; a key that is no plain word as `["a key"]`.

    A path of more than 400 characters ends in `…`.
    """
    parts: list[str] = []
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _PLAIN_KEY.fullmatch(step):
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{json.dumps(step[:_CUT_KEY_AT])}]")
    path = "".join(parts)
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
