"""`TimeWindow`: the days, the hours and the period in which a rule holds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from callgate.errors import PolicyError
from callgate.policy.facts import FactError, read_table, text_of, texts_of

__all__ = ("TimeWindow",)

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WHOLE_DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Hold on some days and hours, in a period: `days` are "mon" to "sun" (empty: all), `start` and `end` are "09:00" and so on.

    `end` before `start` goes past midnight, and the day is then that of the beginning. `end` itself is outside, and so is
    `not_after`; `not_before` is inside. `zone` names a time zone, and a moment without one of its own is meant in it.

    Raises:
        PolicyError: a value cannot be.
    """

    days: tuple[str, ...] = ()
    start: str = "00:00"
    end: str = "24:00"
    zone: str = "UTC"
    not_before: datetime | None = None
    not_after: datetime | None = None
    _zone: tzinfo = field(init=False, repr=False, compare=False, default=UTC)
    _minutes: tuple[int, int] = field(init=False, repr=False, compare=False, default=(0, _WHOLE_DAY))
    _period: tuple[float, float] = field(init=False, repr=False, compare=False, default=(-math.inf, math.inf))

    def __post_init__(self) -> None:
        for day in self.days:
            if day not in _DAYS:
                raise FactError(f"unknown day {day!r}; known are {', '.join(_DAYS)}", "days")
        zone = _zone_of(self.zone)
        first = _moment("not_before", self.not_before, zone, -math.inf)
        last = _moment("not_after", self.not_after, zone, math.inf)
        if not first < last:
            raise FactError("not_after must be later than not_before", "not_after")
        object.__setattr__(self, "days", tuple(self.days))
        object.__setattr__(self, "_zone", zone)
        object.__setattr__(self, "_minutes", _hours(self.start, self.end))
        object.__setattr__(self, "_period", (first, last))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "TimeWindow":
        """Make one of its facts, as in TOML.

        Raises:
            PolicyError: a key is unknown, or a value cannot be.
        """
        if not isinstance(cast("object", facts), Mapping):
            raise PolicyError(f'time must be a table such as {{ days = ["mon"], start = "09:00", end = "17:00" }}, not {facts!r}')
        return cls(**read_table(facts, "time", _READERS))

    def holds(self, now: float) -> bool:
        """Tell whether a moment (seconds since the epoch) is inside."""
        if not self._period[0] <= now < self._period[1]:
            return False
        local = datetime.fromtimestamp(now, UTC).astimezone(self._zone)
        minute, day = local.hour * 60 + local.minute, local.weekday()
        start, end = self._minutes
        if start < end:
            return start <= minute < end and self._has(day)
        return (minute >= start and self._has(day)) or (minute < end and self._has((day - 1) % 7))

    def _has(self, day: int) -> bool:
        return not self.days or _DAYS[day] in self.days


def _as_it_is(value: object) -> object:
    return value


_READERS: Final = {
    "days": texts_of("days"),
    "start": text_of("start"),
    "end": text_of("end"),
    "zone": text_of("zone"),
    "not_before": _as_it_is,
    "not_after": _as_it_is,
}


def _hours(start: object, end: object) -> tuple[int, int]:
    first, last = _minute("start", start), _minute("end", end)
    if first in {last, _WHOLE_DAY}:
        raise FactError(f"start {start!r} and end {end!r} leave no time between them", "end")
    return first, last


def _minute(key: str, text: object) -> int:
    hours, _, minutes = text.partition(":") if isinstance(text, str) and text.isascii() else ("", "", "")
    if not (hours.isdecimal() and minutes.isdecimal() and len(minutes) == 2 and len(hours) <= 2):
        raise FactError(f'a time of the day is written as "09:30", not {text!r}', key)
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > _WHOLE_DAY:
        raise FactError(f'a time of the day is between "00:00" and "24:00", not {text!r}', key)
    return total


def _zone_of(name: object) -> tzinfo:
    if name == "UTC":  # known without the database of zones, which some systems lack
        return UTC
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]  # what is no name is refused with the rest
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, AttributeError) as error:
        raise FactError(f"unknown time zone {name!r}", "zone") from error


def _moment(key: str, moment: object, zone: tzinfo, otherwise: float) -> float:
    if moment is None:
        return otherwise
    if not isinstance(moment, datetime):
        raise FactError(f"{key} must be a moment such as 2030-01-31T12:00:00Z, not {moment!r}", key)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
