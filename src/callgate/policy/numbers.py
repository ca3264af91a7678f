"""Numbers as policies compare them: exactly, however large, and never a boolean or NaN."""

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

__all__ = ("exact",)

_NUMERAL: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE_FLOATS: Final = 2.0**53
"""Below this every whole number has a float of its own."""


def exact(value: object) -> Any:
    """Give a number that compares exactly with others (an int or a Decimal); None for what is no number.

    A text is one when it is written as in JSON (a decimal parameter has that form), and a float is the shortest decimal that
    stands for it, so that 0.1 is the 0.1 of a rule.
    """
    kind = type(value)
    if kind is int:
        return value
    if kind is float:
        return _exact_float(value)  # type: ignore[arg-type]  # its type was just looked at
    if isinstance(value, str):
        return _exact_text(value)
    return value if isinstance(value, Decimal) and value.is_finite() else None


def _exact_float(value: float) -> int | Decimal | None:
    if not math.isfinite(value):
        return None
    return int(value) if -_WHOLE_FLOATS < value < _WHOLE_FLOATS and value.is_integer() else Decimal(repr(value))


def _exact_text(text: str) -> Decimal | None:
    if not _NUMERAL.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent that no decimal can have
        return None
    return number if number.is_finite() else None
