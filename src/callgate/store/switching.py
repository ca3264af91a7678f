"""The small judgements that every store makes alike: whether a switch forbids a start, a grant holds, a record fits."""

from callgate.store.protocol import JournalFilter
from callgate.store.records import Grant, JournalRecord, KillSwitch, StartEntry

__all__ = ("grant_holds", "is_switched_off", "record_fits")


def is_switched_off(switch: KillSwitch, entry: StartEntry) -> bool:
    """Tell whether a switch forbids a start."""
    if switch.spares_reads and entry.tool_kind == "read":
        return False
    return switch.scope in {"gate", f"tool:{entry.tool_name}", f"caller:{entry.subject}"}


def grant_holds(grant: Grant, now: float) -> bool:
    """Tell whether a grant can be used at that moment."""
    expired = grant.expires_at is not None and grant.expires_at <= now
    used_up = grant.max_uses is not None and grant.uses >= grant.max_uses
    return grant.revoked_at is None and not expired and not used_up


def record_fits(wanted: JournalFilter, record: JournalRecord) -> bool:
    """Tell whether a record is one of those that are wanted."""
    for name in ("key", "run_id", "tool", "caller", "status", "event"):
        value = getattr(wanted, name)
        if value is not None and value != getattr(record, name):
            return False
    early = wanted.since is not None and record.at < wanted.since
    return not (early or (wanted.until is not None and record.at >= wanted.until))
