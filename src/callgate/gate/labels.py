"""What the runs of this process have read, as labels: untrusted text, confidential facts.

A result's labels are collected before the model can have read the result, so whatever the model does because of it is judged
with them. The journal has them too: a run that this process does not know is read from there.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

__all__ = ("NO_LABELS", "RunLabels")

_KEPT_RUNS: Final = 10_000
NO_LABELS: Final[frozenset[str]] = frozenset()


class RunLabels:
    """Keep the labels of the newest runs. Thread safe."""

    def __init__(self) -> None:
        self._labels: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, run_id: str | None) -> frozenset[str] | None:
        """Give the labels of a run; None when the store has to be asked. A call outside of any run has read nothing."""
        return NO_LABELS if run_id is None else self._labels.get(run_id)

    def learn(self, run_id: str, labels: Iterable[str]) -> frozenset[str]:
        """Take in what the store says of a run, which is known from then on."""
        with self._lock:
            together = self._labels[run_id] = self._labels.get(run_id, NO_LABELS).union(labels)
            self._labels.move_to_end(run_id)
            while len(self._labels) > _KEPT_RUNS:
                self._labels.popitem(last=False)
        return together

    def collect(self, run_id: str | None, labels: Iterable[str]) -> None:
        """Add the labels of a result, which the journal has already; a run that is not known stays so."""
        if run_id is not None:
            with self._lock:
                if run_id in self._labels:
                    self._labels[run_id] = self._labels[run_id].union(labels)

    def forget(self, run_id: str) -> None:
        """Let a run go that has ended."""
        with self._lock:
            self._labels.pop(run_id, None)
