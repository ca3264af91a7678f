"""Budgets of a policy: how often a run, a tool in a run, or a caller may call. The policy names counters, the store counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

from callgate.policy.decision import Budget, PolicyCall
from callgate.policy.facts import FactError, read_at, read_table, text_of, texts_of
from callgate.policy.globs import Names

__all__ = ("BudgetRule",)

Per = Literal["run", "tool", "caller", "same-call"]
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRule:
    """Let `limit` calls through, and no more: `per` run, per tool in a run, per caller in a window, or per same call in a run.

    `tools` are names or globs (empty: every tool); calls of all of them count together, but for "tool", where each has a
    counter of its own. "same-call" counts calls of one tool with equal arguments, whatever the order of their keys. `window_s`
    is for "caller": windows of so many seconds, one after the other. `text` is what the model reads then (empty: ours).

    Raises:
        PolicyError: a value cannot be.
    """

    id: str
    limit: int
    per: Per
    tools: tuple[str, ...] = ()
    window_s: float = _HOUR_S
    text: str = ""
    _names: Names | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        _check(self.id, self.limit, self.per, self.window_s)
        read_at(text_of("text"), self.text, "text")
        if self.tools != ():
            object.__setattr__(self, "tools", read_at(texts_of("tools"), self.tools, "tools"))
            object.__setattr__(self, "_names", Names.of(self.tools))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "BudgetRule":
        """Make a budget of its facts, as in TOML.

        Raises:
            PolicyError: a key is unknown or missing, or a value cannot be.
        """
        given = read_table(facts, "a budget", _READERS, ("id", "limit", "per"))
        if "window_s" in given and given["per"] != "caller":
            raise FactError("window_s is for a budget per caller; the others last as long as their run", "window_s")
        return cls(**given)

    def is_about(self, name: str) -> bool:
        """Tell whether calls of a tool count."""
        return self._names is None or self._names.have(name)

    def budget_of(self, call: PolicyCall) -> Budget | None:
        """Give the counter that a call takes a use of; None when it counts nowhere, because it is of no run."""
        head = _quoted(self.id)
        if self.per == "caller":
            begun = math.floor(call.now / self.window_s) * self.window_s
            counter = f"{head}/caller/{_quoted(call.caller.subject)}/{self.window_s!r}s from {begun!r}"
            return Budget(counter, self.limit, self._text("this caller has made its calls for now"))
        if call.run_id is None:
            return None
        run, name = _quoted(call.run_id), call.tool.name
        if self.per == "run":
            return Budget(f"{head}/run/{run}", self.limit, self._text("the run has made all the calls that it may"))
        if self.per == "tool":
            text = self._text(f"the run has called {name!r} as often as it may; go on without it")
            return Budget(f"{head}/run/{run}/{_quoted(name)}", self.limit, text, hides=True)
        said = f"it was called {self.limit} times with these very arguments; use what it answered, or do something else"
        return Budget(f"{head}/run/{run}/{_quoted(name)}/{call.digest}", self.limit, self._text(said))

    def _text(self, ours: str) -> str:
        return self.text or ours


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _as_it_is(value: object) -> object:
    return value


_READERS: Final = {
    "id": _as_it_is,
    "limit": _as_it_is,
    "per": _as_it_is,
    "tools": texts_of("tools"),
    "window_s": _as_it_is,
    "text": text_of("text"),
}


def _check(name: object, limit: object, per: object, window_s: object) -> None:
    if not isinstance(name, str) or not name:
        raise FactError(f"a budget needs an id that is a text, not {name!r}", "id")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise FactError(f"limit must be a whole number from 0, not {limit!r}", "limit")
    if per not in get_args(Per):
        raise FactError(f"per must be one of {', '.join(get_args(Per))}, not {per!r}", "per")
    if isinstance(window_s, bool) or not isinstance(window_s, int | float) or not 0 < window_s < math.inf:
        raise FactError(f"window_s must be a number of seconds above 0, not {window_s!r}", "window_s")
