"""`lines_of`: on which line each key, table and item of a TOML text stands, for error messages; tomllib does not tell.

The text is one that tomllib has accepted, so that nothing is checked here. Source: the specification of TOML 1.0.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

__all__ = ("Way", "lines_of", "nearest", "syntax_line")

Way: TypeAlias = tuple[str | int, ...]
_QUOTES: Final = ('"""', "'''", '"', "'")
_BETWEEN: Final = re.compile(r"(?:[ \t\r\n,]|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t\r\n]*")
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*")


def lines_of(text: str) -> dict[Way, int]:
    """Give the line (from 1) of everything by the way to it, such as ("rule", 2, "when", 0, "op")."""
    scan = _Scan(text)
    scan.read()
    return scan.lines


def nearest(lines: Mapping[Way, int], way: Way) -> int | None:
    """Give the line of what stands at the end of a way, or of the last part of the way that is written; None without any."""
    for length in range(len(way), 0, -1):
        if way[:length] in lines:
            return lines[way[:length]]
    return None


class _Scan:
    """Go through a text once, noting where things begin."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Way, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._tables: dict[Way, int] = {}

    def read(self) -> None:
        """Read the whole text."""
        inside: Way = ()
        while self._next() != "":
            if self._next() == "[":
                inside = self._header()
            else:
                self._pair(inside)

    def _next(self) -> str:
        """Go to what comes after space and comments, and give its first character; none at the end."""
        self._skip(_BETWEEN)
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        skipped = found[0] if found is not None else ""
        self._at += len(skipped)
        return skipped

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _note(self, way: Way) -> None:
        self.lines.setdefault(way, self._here())

    def _header(self) -> Way:
        is_list = self._text.startswith("[[", self._at)
        line = self._here()
        self._at += 1 + is_list
        parts = self._key()
        self._at = self._text.index("]", self._at) + 1 + is_list
        way = self._resolved(parts[:-1])
        way = (*way, parts[-1])
        if is_list:
            place = self._tables[way] = self._tables.get(way, -1) + 1
            self.lines.setdefault(way, line)
            way = (*way, place)
        for length in range(1, len(way) + 1):
            self.lines.setdefault(way[:length], line)
        return way

    def _resolved(self, parts: tuple[str, ...]) -> Way:
        """Put in the place of the newest table wherever a part of a header names a list of tables."""
        way: Way = ()
        for part in parts:
            way = (*way, part)
            if way in self._tables:
                way = (*way, self._tables[way])
        return way

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._next()
            parts.append(self._key_part())
            if not self._skip(_DOT):
                return tuple(parts)

    def _key_part(self) -> str:
        if self._text[self._at] not in "\"'":
            return self._skip(_BARE)
        begun = self._at
        self._string()
        return next(iter(tomllib.loads(self._text[begun : self._at] + "=0")))

    def _pair(self, inside: Way) -> None:
        line = self._here()
        way = inside
        for part in self._key():
            way = (*way, part)
            self.lines.setdefault(way, line)
        self._skip(_EQUALS)
        self._value(way)

    def _value(self, way: Way) -> None:
        char = self._text[self._at]
        if char == "[":
            self._items(way)
        elif char == "{":
            self._inline_table(way)
        elif char in "\"'":
            self._string()
        else:
            self._skip(_SCALAR)

    def _items(self, way: Way) -> None:
        self._at += 1
        place = 0
        while self._next() != "]":
            self._note((*way, place))
            self._value((*way, place))
            place += 1
        self._at += 1

    def _inline_table(self, way: Way) -> None:
        self._at += 1
        while self._next() != "}":
            self._pair(way)
        self._at += 1

    def _string(self) -> None:
        quote = next(each for each in _QUOTES if self._text.startswith(each, self._at))
        at = self._at + len(quote)
        while not self._text.startswith(quote, at):
            at += 2 if self._text[at] == "\\" and quote[0] == '"' else 1
        at += len(quote)
        while len(quote) == 3 and self._text.startswith(quote[0], at):  # up to two quotes may end the text itself
            at += 1
        self._at = at


def syntax_line(error: Any, text: str) -> int:
    """Give the line on which tomllib found that a text is no TOML."""
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else text.count("\n") + 1
