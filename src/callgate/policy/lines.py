"""`line_of`: the line on which a table or a key of a TOML text stands, for error messages; tomllib does not tell."""

import re
from collections.abc import Iterator

__all__ = ("line_of",)

_QUOTES = ('"""', "'''", '"', "'")


def line_of(text: str, table: str | None, place: int, key: str | None) -> int:
    """Give the line (from 1) of `key` in the table `[[table]]` number `place`, of the table's head when it is not found.

    Without a table the key is one of the top.
    """
    head = None if table is None else re.compile(rf"\[\[\s*[\"']?{re.escape(table)}[\"']?\s*\]\]")
    wanted = (
        None if key is None else re.compile(rf"[\"']?{re.escape(key)}[\"']?\s*[=.]|\[\[?\s*[\"']?{re.escape(key)}[\"']?\s*[.\]]")
    )
    number, here, started = 1, head is None, 1
    seen = -1
    for number, line in _starts(text):
        if head is not None and head.match(line):
            seen += 1
            here = seen == place
            started = number if here else started
        elif here and line.startswith("[") and not (wanted is not None and wanted.match(line)):
            here = head is not None and line.startswith("[" + (table or "") + ".")
        elif here and wanted is not None and wanted.match(line):
            return number
    return started


def _starts(text: str) -> Iterator[tuple[int, str]]:
    """Give the lines at which something new begins: not those inside of a text, a list or an inline table."""
    depth, number, i, fresh = 0, 1, 0, True
    while i < len(text):
        char = text[i]
        if fresh and depth == 0 and not char.isspace():
            yield number, text[i : text.find("\n", i) if "\n" in text[i:] else len(text)]
            fresh = False
        if char == "#":
            i = text.find("\n", i) if "\n" in text[i:] else len(text)
            continue
        quote = next((each for each in _QUOTES if text.startswith(each, i)), None)
        if quote is not None:
            end = _end_of(text, i + len(quote), quote)
            number += text.count("\n", i, end)
            i = end
            continue
        depth += (char in "[{") - (char in "]}")
        if char == "\n":
            number += 1
            fresh = True
        i += 1


def _end_of(text: str, start: int, quote: str) -> int:
    i = start
    while i < len(text):
        if text[i] == "\\" and '"' in quote:
            i += 2
        elif text.startswith(quote, i):
            return i + len(quote)
        else:
            i += 1
    return len(text)
