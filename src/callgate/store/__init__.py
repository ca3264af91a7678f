"""What outlives a call: the journal, approvals, grants, runs and profiles, in memory, SQLite or PostgreSQL."""

from typing import Any

from callgate.store.memory import MemoryStore
from callgate.store.opening import open_store, sql_store_class
from callgate.store.protocol import ChainBreak, JournalFilter, Store, Verification
from callgate.store.records import ApprovalRecord, Grant, JournalRecord, KillSwitch, RunRecord

__all__ = (
    "ApprovalRecord",
    "ChainBreak",
    "Grant",
    "JournalFilter",
    "JournalRecord",
    "KillSwitch",
    "MemoryStore",
    "RunRecord",
    "SQLStore",  # pyright: ignore[reportUnsupportedDunderAll]  # loaded when it is asked for
    "Store",
    "Verification",
    "open_store",
)


def __getattr__(name: str) -> Any:
    """Load `SQLStore` when it is first asked for, because its packages are an optional extra."""
    if name == "SQLStore":
        return sql_store_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
