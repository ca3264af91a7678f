"""Budgets of a policy: how often a run, a tool in a run, or a caller may call. The policy names counters, the store counts."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import quote

from callgate.errors import PolicyError
from callgate.policy.decision import Budget, PolicyCall
from callgate.policy.globs import matches

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

    def __post_init__(self) -> None:
        _check(self.id, self.limit, self.window_s, self.tools)
        if self.per not in get_args(Per):
            raise PolicyError(f"per must be one of {', '.join(get_args(Per))}, not {self.per!r}")
        object.__setattr__(self, "tools", tuple(self.tools))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "BudgetRule":
        """Make a budget of its facts, as in TOML.

        Raises:
            PolicyError: a key is unknown or missing, or a value cannot be.
        """
        known = {each.name for each in fields(cls)}
        unknown = facts.keys() - known
        if unknown:
            raise PolicyError(f"unknown key {min(unknown)!r} in a budget; known are {', '.join(sorted(known))}")
        for key in ("id", "limit", "per"):
            if key not in facts:
                raise PolicyError(f"a budget needs {key!r}")
        return cls(**facts)

    def is_about(self, name: str) -> bool:
        """Tell whether calls of a tool count."""
        return not self.tools or any(matches(pattern, name) for pattern in self.tools)

    def budget_of(self, call: PolicyCall) -> Budget | None:
        """Give the counter that a call takes a use of; None when it counts nowhere, because it is of no run."""
        if self.per == "caller":
            window = int(call.now // self.window_s)
            counter = f"{self.id}/caller/{_quoted(call.caller.subject)}/{window}"
            return Budget(counter, self.limit, self._text("this caller has made its calls for now"))
        if call.run_id is None:
            return None
        run, name = _quoted(call.run_id), call.tool.name
        if self.per == "run":
            return Budget(f"{self.id}/run/{run}", self.limit, self._text("the run has made all the calls that it may"))
        if self.per == "tool":
            text = self._text(f"the run has called {name!r} as often as it may; go on without it")
            return Budget(f"{self.id}/run/{run}/{_quoted(name)}", self.limit, text, hides=True)
        said = f"it was called {self.limit} times with these very arguments; use what it answered, or do something else"
        return Budget(f"{self.id}/run/{run}/{_quoted(name)}/{call.digest}", self.limit, self._text(said))

    def _text(self, ours: str) -> str:
        return self.text or ours


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _check(name: object, limit: object, window_s: object, tools: object) -> None:
    if not isinstance(name, str) or not name:
        raise PolicyError(f"a budget needs an id that is a text, not {name!r}")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise PolicyError(f"limit must be a whole number from 0, not {limit!r}")
    if isinstance(window_s, bool) or not isinstance(window_s, int | float) or not window_s > 0:
        raise PolicyError(f"window_s must be a number of seconds above 0, not {window_s!r}")
    listed = isinstance(tools, list | tuple) and all(isinstance(each, str) for each in cast("list[object]", tools))
    if not listed:
        raise PolicyError(f"tools must be a list of texts, not {tools!r}")
