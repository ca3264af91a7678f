"""Hold the reference: the least that any caller has to do, with pydantic-core and the standard library alone."""

import asyncio
from concurrent.futures import Executor
from typing import NotRequired

from pydantic import TypeAdapter
from pydantic_core import to_json
from typing_extensions import TypedDict

from bench.timing import Call
from bench.workloads import ARGUMENTS, Function

__all__ = ("bare", "bare_in_executor", "bare_in_thread", "bare_with_limit")


class _Arguments(TypedDict):
    a: int
    b: NotRequired[int]


_VALIDATE = TypeAdapter(_Arguments).validator.validate_json


def bare(function: Function) -> Call:
    """Validate, call and dump."""

    async def call() -> bytes:
        return to_json(await function(**_VALIDATE(ARGUMENTS)))

    return call


def bare_with_limit(function: Function, limit_s: float) -> Call:
    """Validate, call under `asyncio.timeout`, and dump."""

    async def call() -> bytes:
        arguments = _VALIDATE(ARGUMENTS)
        async with asyncio.timeout(limit_s):
            result = await function(**arguments)
        return to_json(result)

    return call


def bare_in_thread(function: Function) -> Call:
    """Validate, call with `asyncio.to_thread`, and dump."""

    async def call() -> bytes:
        return to_json(await asyncio.to_thread(function, **_VALIDATE(ARGUMENTS)))

    return call


def bare_in_executor(function: Function, executor: Executor) -> Call:
    """Validate, call in `executor`, and dump."""

    async def call() -> bytes:
        arguments = _VALIDATE(ARGUMENTS)
        loop = asyncio.get_running_loop()
        return to_json(await loop.run_in_executor(executor, function, arguments["a"], arguments.get("b", 1)))

    return call
