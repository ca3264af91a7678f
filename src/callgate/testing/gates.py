"""A gate in one line."""

from collections.abc import Callable

from callgate.gate import Gate
from callgate.policy import AllowAll, ToolPolicy
from callgate.registry import ToolRegistry
from callgate.store import Store
from callgate.testing.clock import ManualClock

__all__ = ("gate_for",)


def gate_for(
    *tools: object,
    policy: ToolPolicy | None = None,
    store: Store | None = None,
    clock: Callable[[], float] | None = None,
) -> Gate:
    """Make a gate around some tools: all is allowed and kept in memory, and time stands still, unless it is said otherwise."""
    return Gate(ToolRegistry(tools), policy=policy or AllowAll(), store=store, clock=clock or ManualClock())
