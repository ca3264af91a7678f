"""What a policy says of a call, and what it is asked: values without behaviour. Source: contract rows A1, A2."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Any, cast

from callgate.errors import UsageError
from callgate.tools.tool import Tool
from callgate.values import Caller

__all__ = ("Budget", "Decision", "OfferRequest", "PolicyCall", "Verdict", "digest_of", "strictest")


class Verdict(IntEnum):
    """Order the three answers: of several, the greatest holds."""

    ALLOW = 0
    ASK = 1
    DENY = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """Ask for one use of a counter that may not go above `limit`; the store counts, in all processes alike.

    `counter` names it, for example `run/r1/refund_order`. `text` is what the model reads when it is used up.
    `hides` says that the tool is no longer offered to the run then.

    Raises:
        UsageError: a value is of another type, which no store could count.
    """

    counter: str
    limit: int
    text: str
    hides: bool = False

    def __post_init__(self) -> None:
        if type(self.limit) is not int or type(self.counter) is not str or type(self.text) is not str:
            raise UsageError("a budget is Budget(counter, limit, text): a text, a whole number and a text")


@dataclass(frozen=True, slots=True)
class Decision:
    """Say what happens to one call. `reason` may be shown to the model and to the person who is asked.

    `rules` are the ids of the rules that decided: an approval covers the ASK of these rules and no other.

    Raises:
        UsageError: the verdict is no `Verdict`, or a budget no `Budget`.
    """

    verdict: Verdict
    reason: str = ""
    rules: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def __post_init__(self) -> None:
        if type(self.verdict) is not Verdict:
            raise UsageError(f"a decision's verdict is Verdict.ALLOW, ASK or DENY, not {self.verdict!r}")
        if self.budgets and not all(type(each) is Budget for each in self.budgets):
            raise UsageError("a decision's budgets are a tuple of Budget(counter, limit, text)")

    @classmethod
    def allow(cls, *, rules: tuple[str, ...] = (), budgets: tuple[Budget, ...] = ()) -> "Decision":
        """Let the call run."""
        return cls(Verdict.ALLOW, "", rules, budgets)

    @classmethod
    def ask(cls, reason: str = "", *, rules: tuple[str, ...] = (), budgets: tuple[Budget, ...] = ()) -> "Decision":
        """Let a person decide."""
        return cls(Verdict.ASK, reason, rules, budgets)

    @classmethod
    def deny(cls, reason: str = "", *, rules: tuple[str, ...] = ()) -> "Decision":
        """Refuse the call."""
        return cls(Verdict.DENY, reason, rules)


def strictest(first: Decision, second: Decision) -> Decision:
    """Give the stricter of two decisions with the rules and budgets of both; of equals, the first speaks."""
    speaks = second if second.verdict > first.verdict else first
    same = first.verdict == second.verdict
    rules = first.rules + second.rules if same else speaks.rules
    return Decision(speaks.verdict, speaks.reason, rules, first.budgets + second.budgets)


def digest_of(arguments: Mapping[str, object]) -> str:
    """Give what is the same for equal arguments in JSON form, whatever the order of keys, and 1 and 1.0 alike."""
    canonical = json.dumps(_alike(arguments), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _alike(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: _alike(each) for key, each in cast("Mapping[str, object]", value).items()}
    return [_alike(each) for each in cast("list[object]", value)] if isinstance(value, list) else value


class PolicyCall:
    """Be one call as a policy judges it: its input has been parsed.

    `arguments` are the parsed arguments in JSON form, defaults filled in; numbers are numbers there even when the model
    wrote them as text. They may be given as a function that makes them, because many policies never look. `labels` are what
    the run has read so far. `now` is in seconds since the epoch.
    """

    __slots__ = ("_arguments", "caller", "labels", "now", "run_id", "step", "thread_id", "tool")

    def __init__(  # noqa: PLR0913, PLR0917 - the facts of a call; every gated call makes one, by place
        self,
        tool: Tool[Any, Any],
        arguments: Mapping[str, object] | Callable[[], Mapping[str, object]],
        caller: Caller,
        now: float,
        run_id: str | None = None,
        thread_id: str | None = None,
        step: int | None = None,
        labels: frozenset[str] = frozenset(),
    ) -> None:
        self.tool = tool
        self._arguments = arguments
        self.caller = caller
        self.now = now
        self.run_id = run_id
        self.thread_id = thread_id
        self.step = step
        self.labels = labels

    @property
    def arguments(self) -> Mapping[str, object]:
        """The parsed arguments in JSON form."""
        arguments = self._arguments
        if callable(arguments):
            arguments = self._arguments = arguments()
        return arguments

    @property
    def digest(self) -> str:
        """The same for equal arguments, whatever the order of their keys (SHA-256 in hex)."""
        return digest_of(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """Say for whom an offer is made, and what the run has read so far."""

    caller: Caller
    now: float
    run_id: str | None = None
    thread_id: str | None = None
    step: int | None = None
    labels: frozenset[str] = frozenset()
