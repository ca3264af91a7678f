"""A clock that goes when it is told to."""

__all__ = ("ManualClock",)


class ManualClock:
    """Give seconds since the epoch that only `advance` changes: `Gate(…, clock=ManualClock())`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Give the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
