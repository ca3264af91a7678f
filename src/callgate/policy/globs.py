"""Whole-name globs: `*` for any text, `?` for one character; `bash` never matches `bash_session`.

Case counts, and names are compared character by character as they are: no Unicode form is changed into another, so a glob
has to be written in the form that the name has.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

__all__ = ("Names", "is_glob", "matches", "prefix_of")

_WILD = re.compile(r"[*?]")


def is_glob(pattern: str) -> bool:
    """Tell whether a pattern stands for more than one name."""
    return "*" in pattern or "?" in pattern


def matches(pattern: str, name: str) -> bool:
    """Tell whether the whole of `name` fits the pattern; case counts."""
    if not is_glob(pattern):
        return pattern == name
    return _compiled(pattern).fullmatch(name) is not None


def prefix_of(pattern: str) -> str:
    """Give the text with which every name begins that fits the pattern."""
    return _WILD.split(pattern, maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Names:
    """Be a set of names and globs, made for being asked often."""

    exact: frozenset[str]
    globs: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "Names":
        """Make it of patterns."""
        given = tuple(patterns)
        globs = tuple(_compiled(pattern) for pattern in given if is_glob(pattern))
        return cls(frozenset(pattern for pattern in given if not is_glob(pattern)), globs)

    def have(self, name: str) -> bool:
        """Tell whether a name fits one of them."""
        if name in self.exact:
            return True
        for pattern in self.globs:
            if pattern.fullmatch(name) is not None:
                return True
        return False


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    first, *others = (_literal(part) for part in re.split(r"\*+", pattern))
    if not others:
        return re.compile(first, re.DOTALL)
    # What stands between two stars is best where it first occurs, so the search never has to come back to it: without the
    # atomic groups a name made for it could keep a glob with many stars busy for hours.
    between = "".join(f"(?>.*?{part})" for part in others[:-1])
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)


def _literal(part: str) -> str:
    return "".join("." if char == "?" else re.escape(char) for char in part)
