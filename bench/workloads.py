"""Hold the functions that are made into tools, the same ones for callgate and for every peer.

They are module level functions, so that a worker process can import them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ("ANSWER", "ARGUMENTS", "Function", "add", "add_after_one_ms", "add_after_yielding", "add_blocking", "numbered")

Function = Callable[..., Any]

ARGUMENTS = '{"a": 2, "b": 1}'
ANSWER = 3


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def add_after_yielding(a: int, b: int = 1) -> int:
    """Add two numbers after one turn of the event loop."""
    await asyncio.sleep(0)
    return a + b


async def add_after_one_ms(a: int, b: int = 1) -> int:
    """Add two numbers after a millisecond."""
    await asyncio.sleep(0.001)
    return a + b


def add_blocking(a: int, b: int = 1) -> int:
    """Add two numbers in a function that is not async."""
    return a + b


def numbered(count: int) -> list[Function]:
    """Make `count` async functions that differ in name."""
    return [_numbered(place) for place in range(count)]


def _numbered(place: int) -> Function:
    async def function(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    function.__name__ = function.__qualname__ = f"add_{place:05}"
    return function
