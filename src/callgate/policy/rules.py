"""A rule of a policy: which calls it is about, and what it says of them. Source: contract row A1; docs/adr/0010."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from callgate.errors import PolicyError
from callgate.policy.conditions import Condition, Judgement, judge
from callgate.policy.decision import OfferRequest, PolicyCall, Verdict
from callgate.policy.globs import matches
from callgate.tools.tool import Tool

__all__ = ("Rule", "TimeWindow", "verdict_of")

_VERDICTS: Final = {"allow": Verdict.ALLOW, "ask": Verdict.ASK, "deny": Verdict.DENY}
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def verdict_of(word: Any, what: str = "decision") -> Verdict:
    """Read a decision.

    Raises:
        PolicyError: it is not "allow", "ask" or "deny".
    """
    if word not in _VERDICTS:
        raise PolicyError(f'{what} must be "allow", "ask" or "deny", not {word!r}')
    return _VERDICTS[word]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Hold on some days and hours: `days` are "mon" to "sun" (empty: all), `start` and `end` are "09:00" and the like.

    `end` before `start` goes past midnight, and the day is then that of the beginning. `zone` names a time zone.

    Raises:
        PolicyError: a value cannot be.
    """

    days: tuple[str, ...] = ()
    start: str = "00:00"
    end: str = "24:00"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        unknown = [day for day in self.days if day not in _DAYS]
        if unknown:
            raise PolicyError(f"unknown day {unknown[0]!r}; known are {', '.join(_DAYS)}")
        _minutes(self.start)
        _minutes(self.end)
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise PolicyError(f"unknown time zone {self.zone!r}") from error

    def holds(self, now: float) -> bool:
        """Tell whether a moment (seconds since the epoch) is inside."""
        local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.zone))
        minute, day = local.hour * 60 + local.minute, local.weekday()
        start, end = _minutes(self.start), _minutes(self.end)
        if start < end:
            return start <= minute < end and self._has(day)
        return (minute >= start and self._has(day)) or (minute < end and self._has((day - 1) % 7))

    def _has(self, day: int) -> bool:
        return not self.days or _DAYS[day] in self.days


def _minutes(text: object) -> int:
    hours, colon, minutes = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not (colon and hours.isdecimal() and minutes.isdecimal() and len(minutes) == 2):
        raise PolicyError(f'a time of the day is written as "09:30", not {text!r}')
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > 24 * 60:
        raise PolicyError(f'a time of the day is between "00:00" and "24:00", not {text!r}')
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Say ALLOW, ASK or DENY of the calls that fit everything that is given; what is left out fits any call.

    `tools` and `callers` are names or whole-name globs, of which one has to fit; `kinds`, `tags`, `roles` and `labels` are
    words, of which the call has to have one. `labels` are what the run has read so far. All conditions of `when` have to
    hold, and `time` has to be now. `reason` may be shown to the model and to the person who is asked.

    Raises:
        PolicyError: a value is of another type, or cannot be.
    """

    id: str
    decision: Verdict
    tools: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()
    time: TimeWindow | None = None
    reason: str = ""
    _dynamic: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        name = cast("object", self.id)
        if not isinstance(name, str) or not name:
            raise PolicyError(f"a rule needs an id that is a text, not {name!r}")
        for key in ("tools", "kinds", "tags", "callers", "roles", "labels"):
            object.__setattr__(self, key, _texts(key, getattr(self, key)))
        reason = cast("object", self.reason)
        if not isinstance(reason, str):
            raise PolicyError(f"reason must be a text, not {reason!r}")
        dynamic = bool(self.callers or self.roles or self.labels or self.when or self.time)
        object.__setattr__(self, "_dynamic", dynamic)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Rule":
        """Make a rule of its facts, as in TOML.

        Raises:
            PolicyError: a key is unknown or missing, or a value cannot be.
        """
        given = dict(facts)
        unknown = given.keys() - _KEYS
        if unknown:
            raise PolicyError(f"unknown key {min(unknown)!r} in a rule; known are {', '.join(sorted(_KEYS))}")
        for key in ("id", "decision"):
            if key not in given:
                raise PolicyError(f"a rule needs {key!r}")
        given["decision"] = verdict_of(given["decision"])
        when = given.get("when", ())
        if not isinstance(when, list | tuple):
            raise PolicyError(f"when must be a list of conditions, not {when!r}")
        given["when"] = tuple(Condition.of(each) for each in cast("list[Mapping[str, object]]", when))
        if "time" in given:
            given["time"] = _window(given["time"])
        return cls(**given)

    def is_about(self, tool: Tool[Any, Any]) -> bool:
        """Tell whether the rule is about a tool, whoever calls it with whatever arguments."""
        return (
            (not self.tools or any(matches(pattern, tool.name) for pattern in self.tools))
            and (not self.kinds or tool.kind in self.kinds)
            and (not self.tags or not tool.tags.isdisjoint(self.tags))
        )

    def is_for(self, call: PolicyCall | OfferRequest) -> bool:
        """Tell whether the rule is about a caller, at a moment, after what the run has read."""
        caller = call.caller
        return (
            (not self.callers or any(matches(pattern, caller.subject) for pattern in self.callers))
            and (not self.roles or any(role in self.roles for role in caller.roles))
            and (not self.labels or not call.labels.isdisjoint(self.labels))
            and (self.time is None or self.time.holds(call.now))
        )

    def fits(self, call: PolicyCall) -> bool:
        """Tell whether the rule speaks of a call to a tool that it is about; what cannot be judged never loosens."""
        if not self._dynamic:
            return True
        if not self.is_for(call):
            return False
        wanted = (Judgement.YES,) if self.decision is Verdict.ALLOW else (Judgement.YES, Judgement.UNKNOWN)
        return all(judge(condition, call.arguments) in wanted for condition in self.when)


_KEYS: Final = frozenset(each.name for each in fields(Rule) if each.init)


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise PolicyError(f"{name} must be a list of texts, not {value!r}")
    texts = tuple(cast("list[object]", value))
    if not all(isinstance(text, str) and text for text in texts):
        raise PolicyError(f"{name} must hold texts that are not empty, not {value!r}")
    return cast("tuple[str, ...]", texts)


def _window(facts: object) -> TimeWindow:
    if not isinstance(facts, Mapping):
        raise PolicyError(f'time must be a table such as {{ days = ["mon"], start = "09:00", end = "17:00" }}, not {facts!r}')
    given = dict(cast("Mapping[str, Any]", facts))
    unknown = given.keys() - {"days", "start", "end", "zone"}
    if unknown:
        raise PolicyError(f"unknown key {min(unknown)!r} in time; known are days, end, start, zone")
    if "days" in given:
        given["days"] = _texts("days", given["days"])
    return TimeWindow(**given)
