"""Write what others have said so that a terminal shows it and does not obey it.

A model chooses call ids and arguments, a tool its output, a reviewer their words. Any of them may hold sequences that move the
cursor, set the title or answer for the user, and signs that turn the reading order around, so that what is approved is not what
is seen. What is printed for people has these written out; what is printed for programs is JSON with the same signs escaped.
"""

import json
import re
import sys
from typing import Any, Final, TextIO

from rich.text import Text

__all__ = ("for_programs", "for_stdout", "line", "lines", "said")

_TURNING: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f"
_OBEYED: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}]")
_BREAKING: Final = re.compile(rf"[\x00-\x1f\x7f-\x9f{_TURNING}]")
_ESCAPED_IN_JSON: Final = re.compile(rf"[\x7f-\x9f{_TURNING}]")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def lines(text: str) -> str:
    """Write a text of several lines: what a terminal would obey is written as in Python, but ends of lines and tabs."""
    return _OBEYED.sub(_escape, text.replace("\r\n", "\n"))


def line(text: str) -> str:
    """Write a text on one line, so that it cannot pose as a further line."""
    return _BREAKING.sub(_escape, text)


def said(text: str, style: str = "") -> Text:
    """Write a text for a console in a style; nothing in it is markup."""
    return Text(lines(text), style=style)


def for_stdout(text: str, stream: TextIO | None = None) -> str:
    """Write a text for whoever reads `stream` (None: stdout): a terminal does not obey it, a program gets it as it is."""
    return lines(text) if (stream or sys.stdout).isatty() else text


def for_programs(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON that means the same and that no terminal obeys."""
    return _ESCAPED_IN_JSON.sub(_escape_in_json, json.dumps(value, ensure_ascii=False, indent=indent))


def _escape_in_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
