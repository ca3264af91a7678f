"""Whole-name globs: `*` for any text, `?` for one character; `bash` never matches `bash_session`."""

import re
from functools import lru_cache

__all__ = ("is_glob", "matches")


def is_glob(pattern: str) -> bool:
    """Tell whether a pattern stands for more than one name."""
    return "*" in pattern or "?" in pattern


def matches(pattern: str, name: str) -> bool:
    """Tell whether the whole of `name` fits the pattern; case counts."""
    if not is_glob(pattern):
        return pattern == name
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(char) or re.escape(char) for char in re.sub(r"\*+", "*", pattern)), re.DOTALL)
