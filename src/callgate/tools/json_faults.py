"""Find out where and why a text is no JSON that callgate accepts: the slow, careful twin of the fast parser.

It runs only after the fast parser has refused a text, reads one token after the other without recursion, and stops at
the first fault. It accepts exactly what the fast parser accepts, raw control characters inside strings besides.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import NoReturn

from callgate.tools.paths import Step, write_path

__all__ = ("MAX_DEPTH", "Fault", "escape_control_characters", "find_fault")

MAX_DEPTH = 201
"""How many objects and lists may enclose a value, the arguments object among them: the fast parser's own limit."""

_HEX = "[0-9a-fA-F]"
_BLANKS = re.compile(r"[ \t\n\r]*")
_STRING_BODY = re.compile(
    r"(?:[^\"\\\ud800-\udfff]++"
    r'|\\["\\/bfnrt]'
    rf"|\\u(?![dD][89a-fA-F]){_HEX}{{4}}"
    rf"|\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}})*+"
)
_LONE_SURROGATE = re.compile(rf"[\ud800-\udfff]|\\u[dD][89a-fA-F]{_HEX}{{2}}")
_CUT_ESCAPE = re.compile(rf"(?:\\u[dD][89abAB]{_HEX}{{2}})?(?:\\(?:u{_HEX}{{0,3}})?)?\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_WORD = re.compile(r"[+-]?[\w.$][\w.$+-]*|[+-]")
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})
_LITERALS = ("true", "false", "null")
# The last quote is optional, so that a text without one is passed over once and not once for each quote in it.
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_ESCAPE_OR_CONTROL = re.compile(r"\\.|[\x00-\x1f]", re.DOTALL)

_ONE_OBJECT = "one JSON object"
_SEND_LESS = "the arguments are incomplete; send less in one call, and end every text, list and object"


@dataclass(frozen=True, slots=True)
class Fault:
    """Say what is wrong at character `offset` (from 0) of a text; `path` is where that is within the arguments."""

    offset: int
    path: str
    expected: str
    got: str
    hint: str = ""


def find_fault(text: str) -> Fault | None:
    """Give the first fault of `text` as JSON, or None when it has none. The value may be of any type."""
    try:
        _Scanner(text).scan()
    except _FoundError as found:
        return found.fault
    return None


def escape_control_characters(text: str) -> str:
    """Write raw control characters inside the strings of a JSON text as escapes, and leave all else as it is.

    A control character after a backslash is left: there it is a broken escape and no content. Source: case b10.
    """
    return _QUOTED.sub(lambda quoted: _ESCAPE_OR_CONTROL.sub(_escaped, quoted[0]), text)


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[0][0] == "\\" else f"\\u{ord(match[0]):04x}"


class _FoundError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault


@dataclass(slots=True)
class _Frame:
    """An object (with the keys seen) or a list (without) that is open at the moment, and the step within it."""

    keys: set[str] | None
    step: Step = 0

    @property
    def closer(self) -> str:
        return "]" if self.keys is None else "}"


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.frames: list[_Frame] = []

    def scan(self) -> None:
        wants_value = True
        while wants_value or self.frames:
            wants_value = self._value() if wants_value else self._separator()
        self._skip_blanks()
        if self.position < len(self.text):
            self._fail(_ONE_OBJECT, "more text after its end", "send one JSON object and nothing after it")

    def _value(self) -> bool:
        """Read a value or the beginning of one; tell whether another value has to follow at once."""
        first = self._next_character()
        if first in "{[":
            return self._open(first)
        if first == '"':
            self._string()
        elif first == "-" or first.isdigit():
            self._number()
        else:
            self._literal(first)
        return False

    def _open(self, opener: str) -> bool:
        if len(self.frames) >= MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH - 1} levels of lists and objects", "more levels", "send flatter arguments")
        self.position += 1
        frame = _Frame(set() if opener == "{" else None)
        first = self._next_character()
        self.frames.append(frame)
        if first == frame.closer:
            self._close()
            return False
        if frame.keys is not None:
            self._key(frame, frame.keys)
        return True

    def _separator(self) -> bool:
        """Read what stands after a value within a list or an object; tell whether another value has to follow."""
        frame = self.frames[-1]
        found = self._next_character()
        if found == frame.closer:
            self._close()
            return False
        if found != ",":
            self._fail(f"',' or '{frame.closer}'", _described(found), _hint_for(found))
        self.position += 1
        if self._next_character() == frame.closer:
            self._fail("another value after ','", f"'{frame.closer}'", "leave out the last comma")
        if isinstance(frame.step, int):
            frame.step += 1
        if frame.keys is not None:
            self._key(frame, frame.keys)
        return True

    def _close(self) -> None:
        self.frames.pop()
        self.position += 1

    def _key(self, frame: _Frame, keys: set[str]) -> None:
        frame.step = ""
        if (found := self._next_character()) != '"':
            self._fail("a name in double quotes", _described(found), _hint_for(found))
        start = self.position
        self._string()
        frame.step = key = str(json.loads(self.text[start : self.position], strict=False))
        if key in keys:
            self._fail_at(start, "every name once", "the same name a second time", "keep one of the two")
        keys.add(key)
        if (found := self._next_character()) != ":":
            self._fail("':' after the name", _described(found))
        self.position += 1

    def _string(self) -> None:
        body = _STRING_BODY.match(self.text, self.position + 1)
        assert body is not None  # the pattern matches an empty body
        self.position = body.end()
        if self.text.startswith('"', self.position):
            self.position += 1
        elif _CUT_ESCAPE.match(self.text, self.position):
            self._fail_cut_off()
        elif _LONE_SURROGATE.match(self.text, self.position):
            self._fail("whole characters", "half of a surrogate pair", "write both halves, or the character itself")
        else:
            self._fail("one of the escapes of JSON", "an unknown escape", "write a backslash within text as \\\\")

    def _number(self) -> None:
        start, number = self.position, _NUMBER.match(self.text, self.position)
        word = _WORD.match(self.text, start)
        assert word is not None  # a digit or a sign is a word
        if number is None or number.end() != word.end():
            self._fail_word(word)
        if math.isinf(float(number[0])):
            self._fail("a number that a 64-bit float can hold", "a larger one", "send it as text if the tool takes text")
        self.position = number.end()

    def _literal(self, first: str) -> None:
        word = _WORD.match(self.text, self.position)
        if word is None:
            self._fail(_ONE_OBJECT if not self.frames else "a value", _described(first), _hint_for(first))
        if word[0] not in _LITERALS:
            self._fail_word(word)
        self.position = word.end()

    def _fail_word(self, word: re.Match[str]) -> NoReturn:
        text = word[0]
        if text.lstrip("+-").casefold() in _NOT_FINITE:
            self._fail("a finite number", "NaN or Infinity", "JSON has neither")
        if self.frames and word.end() == len(self.text):
            self.position = word.end()
            self._fail_cut_off()
        if text.casefold() in {*_LITERALS, "none"}:
            self._fail("a value of JSON", "a word of another language", "write true, false and null, in small letters")
        if not self.frames:
            self._fail(_ONE_OBJECT, "text that is no JSON")
        if text[0] in "+-.0123456789":
            self._fail("a number as JSON writes it", "another form", "such as 12, -0.5 or 1e6")
        self._fail("a value", "a word without quotes", "put text in double quotes")

    def _next_character(self) -> str:
        self._skip_blanks()
        if self.position == len(self.text):
            self._fail_cut_off()
        return self.text[self.position]

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self.text, self.position)
        assert blanks is not None  # the pattern matches no blanks
        self.position = blanks.end()

    def _fail_cut_off(self) -> NoReturn:
        self.position = len(self.text)
        self._fail("complete JSON", "a text that is cut off", _SEND_LESS)

    def _fail(self, expected: str, got: str, hint: str = "") -> NoReturn:
        self._fail_at(self.position, expected, got, hint)

    def _fail_at(self, offset: int, expected: str, got: str, hint: str = "") -> NoReturn:
        path = write_path(frame.step for frame in self.frames if frame.step != "")
        raise _FoundError(Fault(offset, path, expected, got, hint))


def _described(character: str) -> str:
    if character in "{}[],:":
        return f"'{character}'"
    if character in "\"'`":
        return "a quotation mark"
    return "other text"


def _hint_for(character: str) -> str:
    match character:
        case "'":
            return "use double quotes for names and text"
        case "`":
            return "send the object alone, without a code fence"
        case "/" | "#":
            return "JSON has no comments"
        case _:
            return ""
