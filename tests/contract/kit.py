"""What the contract's tests share: the two doors of a registry, calls in the background, and reports that have arrived."""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from callgate import ToolError, ToolRegistry
from callgate.diagnostics import DiagnosticContext

PATIENCE_S = 25.0
"""How long a test waits for what must come; only a broken build waits so long."""


def by_invoke(registry: ToolRegistry, *request: Any, **keywords: Any) -> Any:
    return registry.invoke(*request, **keywords)


def by_ainvoke(registry: ToolRegistry, *request: Any, **keywords: Any) -> Any:
    return asyncio.run(registry.ainvoke(*request, **keywords))


def by_execute(registry: ToolRegistry, *request: Any, **keywords: Any) -> Any:
    return asyncio.run(registry.execute(*request, **keywords))


def by_answer(registry: ToolRegistry, *request: Any, **keywords: Any) -> Any:
    return asyncio.run(registry.answer(*request, **keywords))


def failure(door: Callable[..., Any], registry: ToolRegistry, *request: Any, **keywords: Any) -> ToolError:
    """Make a call that must fail, and give its error."""
    with pytest.raises(ToolError) as caught:
        door(registry, *request, **keywords)
    return caught.value


def background(door: Callable[..., Any], *args: Any, **keywords: Any) -> "Future[Any]":
    """Make a call in a thread of its own, which holds no process."""
    ended: Future[Any] = Future()

    def run() -> None:
        try:
            ended.set_result(door(*args, **keywords))
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


def ended(future: "Future[Any]") -> Any:
    """Give what a call in the background gave, or raise what it raised."""
    return future.result(PATIENCE_S)


def happens(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S), "it did not happen"


def delivered(registry: ToolRegistry) -> None:
    """Wait until no report is on its way, so that a test can say that none came."""
    reporter = registry._pipeline.settings.reporter
    assert reporter is not None
    assert reporter.flush(PATIENCE_S)


def watched(event: str, then: Callable[[Any], object]) -> DiagnosticContext:
    """Give a scope that calls `then` with the payload of each event of that name, content included."""

    def observer(seen: Any) -> None:
        if seen.name == event:
            then(seen.payload)

    return DiagnosticContext().with_observer(observer, "content")


def everything_said(error: ToolError, registry: ToolRegistry) -> str:
    """Gather all that a failed call shows to others than the server: its texts, its attributes, its receipt."""
    parts: list[object] = [str(error), repr(error), error.args, error.user_message, error.code, error.__dict__]
    return json.dumps([*map(repr, parts), repr(registry.events)])
