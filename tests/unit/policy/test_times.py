"""When a rule with a time holds."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from callgate import PolicyError
from callgate.policy import TimeWindow

PLAIN = datetime(2024, 5, 6, tzinfo=UTC).replace(tzinfo=None)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("window", "moment", "holds"),
    [
        ({}, "2024-05-06T00:00Z", True),
        ({"start": "09:00", "end": "17:00"}, "2024-05-06T09:00Z", True),
        ({"start": "09:00", "end": "17:00"}, "2024-05-06T08:59:59Z", False),
        ({"start": "09:00", "end": "17:00"}, "2024-05-06T17:00Z", False),
        ({"days": ["mon"]}, "2024-05-06T12:00Z", True),
        ({"days": ["tue"]}, "2024-05-06T12:00Z", False),
        ({"days": ["mon"], "start": "22:00", "end": "06:00"}, "2024-05-07T05:59Z", True),
        ({"days": ["mon"], "start": "22:00", "end": "06:00"}, "2024-05-06T05:59Z", False),
        ({"days": ["mon"], "start": "22:00", "end": "06:00"}, "2024-05-06T23:00Z", True),
        ({"start": "09:00", "end": "17:00", "zone": "Asia/Tokyo"}, "2024-05-06T00:30Z", True),
        ({"start": "09:00", "end": "17:00", "zone": "Europe/Berlin"}, "2024-01-15T08:30Z", True),
        ({"start": "09:00", "end": "17:00", "zone": "Europe/Berlin"}, "2024-07-15T15:30Z", False),
        ({"not_before": datetime(2024, 5, 6, tzinfo=UTC)}, "2024-05-06T00:00Z", True),
        ({"not_before": datetime(2024, 5, 6, tzinfo=UTC)}, "2024-05-05T23:59:59Z", False),
        ({"not_after": datetime(2024, 5, 6, tzinfo=UTC)}, "2024-05-06T00:00Z", False),
        ({"not_after": datetime(2024, 5, 6, tzinfo=timezone(timedelta(hours=2)))}, "2024-05-05T22:00Z", False),
        ({"not_after": PLAIN, "zone": "Asia/Tokyo"}, "2024-05-05T14:59Z", True),
        ({"not_after": PLAIN, "zone": "Asia/Tokyo"}, "2024-05-05T15:00Z", False),
    ],
)
def test_a_window_holds_in_its_own_zone(window, moment, holds):
    assert TimeWindow.of(window).holds(at(moment)) is holds


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        ({"days": ["monday"]}, "unknown day"),
        ({"days": []}, "must not be empty"),
        ({"days": "mon"}, "list of texts"),
        ({"start": "9"}, "09:30"),
        ({"start": "9:5"}, "09:30"),
        ({"start": 9}, "must be a text"),
        ({"start": "25:00"}, "between"),
        ({"start": "23:60"}, "between"),
        ({"start": "\u0660\u0669:00"}, "09:30"),
        ({"start": "09:00", "end": "09:00"}, "no time between"),
        ({"start": "24:00", "end": "06:00"}, "no time between"),
        ({"zone": "Mars/Base"}, "unknown time zone"),
        ({"zone": "../UTC"}, "unknown time zone"),
        ({"zone": ""}, "unknown time zone"),
        ({"not_before": "2024-01-01"}, "must be a moment"),
        ({"not_before": date(2024, 5, 6)}, "must be a moment"),
        ({"not_before": PLAIN, "not_after": PLAIN}, "later than"),
        ({"until": "x"}, "unknown key 'until' in time"),
        ("mon", "must be a table"),
    ],
)
def test_a_window_that_cannot_be_is_refused(window, reason):
    with pytest.raises(PolicyError, match=reason):
        TimeWindow.of(window)
