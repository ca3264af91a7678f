"""`Tally`: count from many threads without a lock."""

import itertools
from collections.abc import Callable

__all__ = ("Tally",)


class Tally:
    """Count how often `add` is called, which is atomic."""

    __slots__ = ("_numbers", "add")

    add: Callable[[], int]

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.add = self._numbers.__next__

    @property
    def count(self) -> int:
        """How often it was."""
        return int(repr(self._numbers)[len("count(") : -1])  # the one way to read a counter without counting
