"""Find the tool that a model meant by a name that no tool has: by its loose spelling, or the nearest for advice.

Both take time linear in the length of the name and the number of tools, with a small factor: a model that invents a
name in every call must not slow its host down.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import SequenceMatcher
from heapq import nlargest
from typing import TypeAlias

__all__ = ("LooseIndex", "loose_index", "match_loosely", "nearest_names", "normalised")

LooseIndex: TypeAlias = Mapping[str, tuple[str, ...]]
"""For each loose spelling the names that have it."""

_PREFIX = re.compile(r"\A(?:functions?|tools?|default_api)[.:/]")
_CALL_SIGNS = re.compile(r"\(\s*\)\Z")
_SEPARATORS = re.compile(r"[\s._:/-]+")
_LONGEST = 160
_PIECES = 4
_COMPARED = 40
_LIKE_ENOUGH = 0.6


def normalised(name: str) -> str:
    """Spell a name loosely, so that names which a model confuses are the same.

    Blanks around it, the prefix `functions.` and the signs of a call go; case and kind of separator count no more.
    Source: case b15.
    """
    bare = _CALL_SIGNS.sub("", name.strip()[:_LONGEST]).strip().casefold()
    return _SEPARATORS.sub("_", _PREFIX.sub("", bare, count=1))


def loose_index(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Index names by their loose spelling, for `match_loosely`."""
    index: dict[str, tuple[str, ...]] = {}
    for name in names:
        spelling = normalised(name)
        index[spelling] = (*index.get(spelling, ()), name)
    return index


def match_loosely(name: str, index: LooseIndex, offered: Callable[[str], bool] = lambda _: True) -> str | None:
    """Give the one offered tool whose name is spelt like `name`, or None when there is none or more than one.

    Ask only for a name that no tool has as it is written. Source: case b15.
    """
    found = [known for known in index.get(normalised(name), ()) if offered(known)]
    return found[0] if len(found) == 1 else None


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Give at most `limit` known names that resemble `name`, the most alike first; none when nothing does.

    Comparing all names letter by letter takes 100 ms for 10,000. So each is first looked at for pieces of `name`, which
    a name with a few typing errors still holds, and only those that hold most are compared. Source: case b14.
    """
    wanted = normalised(name)
    pieces = _pieces(wanted)
    if not pieces:
        return ()
    candidates = nlargest(_COMPARED, _holding(pieces, known, len(wanted)))
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    alike = [(_likeness(matcher, candidate), candidate) for _, _, candidate in candidates]
    best = sorted((pair for pair in alike if pair[0] >= _LIKE_ENOUGH), key=lambda pair: (-pair[0], pair[1]))
    return tuple(candidate for _, candidate in best[:limit])


def _pieces(wanted: str) -> tuple[str, ...]:
    size = max(1, -(-len(wanted) // _PIECES))
    return tuple(dict.fromkeys(wanted[start : start + size] for start in range(0, len(wanted), size)))


def _holding(pieces: tuple[str, ...], known: Iterable[str], length: int) -> Iterable[tuple[int, int, str]]:
    """Give how many pieces each known name holds, how near its length is (the greater the nearer), and the name."""
    for name in known:
        spelling = name.casefold()
        held = 0
        for piece in pieces:
            if piece in spelling:
                held += 1
        if held:
            yield held, -abs(len(name) - length), name


def _likeness(matcher: SequenceMatcher[str], candidate: str) -> float:
    matcher.set_seq1(normalised(candidate))
    return matcher.ratio()
