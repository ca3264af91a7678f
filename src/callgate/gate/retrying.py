"""When a failed attempt is followed by another one, and after how long. Source: contract row P13, case j6."""

import asyncio
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from callgate.errors import ToolError, ToolTimeoutError, UsageError
from callgate.registry import Call
from callgate.running.driving import call_in_loop
from callgate.values import check_limit

__all__ = ("Backoff", "is_transient")

_MOST_DOUBLINGS: Final = 64  # any wait is longer than its bound by then, and a float still holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Say how long to wait before the next attempt, in seconds: `first_s`, doubled each time up to `most_s`.

    Up to half of it is taken away at random, so that callers who failed together do not come again together.
    """

    first_s: float = 0.2
    most_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("first_s", "most_s"):
            seconds = cast("object", getattr(self, name))
            check_limit(name, seconds)
            if seconds is None:
                raise UsageError(f"{name} must be a number of seconds above 0, not None")

    def delay_s(self, attempt: int) -> float:
        """Give the seconds to wait after that attempt (the first is 1)."""
        full = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))
        return full * (1.0 - 0.5 * random.random())  # noqa: S311 - no secret: it spreads the load

    async def wait(self, attempt: int, call: Call) -> None:
        """Wait, no longer than the call's deadline; an abort ends the waiting."""
        seconds = self.delay_s(attempt)
        if call.options.deadline is not None:
            seconds = min(seconds, max(0.0, call.options.deadline - time.monotonic()))
        if call.signal is None:
            await asyncio.sleep(seconds)
            return
        loop, aborted = asyncio.get_running_loop(), asyncio.Event()
        deafen = call.signal.add_listener(partial(call_in_loop, loop, aborted.set))
        try:
            async with asyncio.timeout(seconds):
                await aborted.wait()
        except TimeoutError:
            return
        finally:
            deafen()


def is_transient(error: ToolError, transient: tuple[type[BaseException], ...]) -> bool:
    """Tell whether a failure is one of those after which the tool says that trying again may help."""
    cause = TimeoutError() if isinstance(error, ToolTimeoutError) else error.__cause__
    return isinstance(error, transient) or isinstance(cause, transient)
