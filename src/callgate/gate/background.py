"""Tools that answer at once and go on: their result is read later, also after a restart (case j11).

    background = Background()
    registry = ToolRegistry([background.of(render_report), background.reader])
    background.bind(Gate(registry, …))

The work is a call of its own through the same gate, with its own judgement, limits and place in the journal.
"""

import asyncio
import json
from typing import Annotated, Any, Final

from pydantic import Field

from callgate.errors import ToolError, UsageError
from callgate.gate.gate import Gate
from callgate.gate.replay import past_of, replayed
from callgate.store.records import call_key
from callgate.tools.context import ToolContext
from callgate.tools.tool import Tool, as_tool
from callgate.values import Caller, ToolAnswer, ToolCall

__all__ = ("Background",)

_LOOK_S: Final = 0.005
_NOBODY: Final = Caller("(nobody)")


class Background:
    """Make tools that start their work and give a handle, and the one tool `background_result` that reads results.

    A handle opens only in the thread of the call that got it, or in its run when it has no thread. A gate has to be bound before
    the first call. The work is judged by the gate's policy under the name `NAME.work`, with the tool's own kind and tags; one
    that asks for approval waits for a person as any call does.
    """

    def __init__(self) -> None:
        self._gate: Gate | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._labels: frozenset[str] = frozenset()
        self._reader: Tool[Any, Any] | None = None

    @property
    def reader(self) -> Tool[Any, Any]:
        """The tool that reads results. Whatever it reads, the run has then read what any of the work emits."""
        if self._reader is None:
            self._reader = Tool.of(self._read, name="background_result", kind="read", emits=self._labels)
        return self._reader

    def bind(self, gate: Gate) -> Gate:
        """Let the work go through this gate, and give it back."""
        self._gate = gate
        return gate

    def of(self, tool: object) -> Tool[Any, Any]:
        """Give the tool that starts the work of `tool`, under its name and with its arguments.

        Raises:
            UsageError: the reader was made already, and its results could not be labelled with what this tool emits.
        """
        work = as_tool(tool)
        if self._reader is not None and not work.options.emits <= self._labels:
            raise UsageError(f"take background.reader after background.of({work.name}), which emits labels")
        self._labels |= work.options.emits
        inner = work.renamed(f"{work.name}.work")

        async def start(arguments: dict[str, Any], context: ToolContext) -> ToolAnswer[dict[str, str]]:
            handle = context.idempotency_key[:24]
            await self._start(inner, ToolCall(inner.name, arguments, handle), context)
            text = f"Started in the background. Read the result later with background_result and the handle {handle!r}."
            return ToolAnswer({"handle": handle}, text=json.dumps({"handle": handle, "note": text}))

        return Tool(
            work.name,
            start,
            description=work.description,
            input_schema=work.input_schema,
            kind=work.kind,
            tags=work.tags,
            idempotent=True,  # the work has one place in the journal, however often it is started
        )

    async def _start(self, inner: Tool[Any, Any], call: ToolCall, context: ToolContext) -> None:
        """Start the work, and wait until the journal knows of it: a handle that was given is never lost."""
        place = context.call_context
        caller = _NOBODY if place is None or place.caller is None else place.caller
        going = self._bound().call(
            call,
            caller=caller,
            run_id=_scope(context),
            thread_id=context.thread_id,
            tools=[inner],
            user_context=context.user_context,
        )
        task: asyncio.Task[object] = asyncio.ensure_future(going)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        key = call_key(_scope(context), call.id or "")
        while not task.done() and not await self._bound().store.call(key):  # noqa: ASYNC110 - a journal has no event to wait for
            await asyncio.sleep(_LOOK_S)

    def _bound(self) -> Gate:
        if self._gate is None:
            raise UsageError("bind the gate first: background.bind(gate)")
        return self._gate

    async def _read(
        self, handle: Annotated[str, Field(description="The handle that the call gave.")], context: ToolContext
    ) -> ToolAnswer[object]:
        """Read the result of work that was started in the background."""
        past = past_of(await self._bound().store.call(call_key(_scope(context), handle)))
        if past.state == "new":
            raise ToolError(f"There is no background work with the handle {handle!r} here.", code="no_such_work", status=404)
        if past.state in {"running", "asked"}:
            waits = "waits for a person's approval" if past.state == "asked" else "is still at work"
            return ToolAnswer(None, text=f"It {waits}. Ask again later.")
        outcome = replayed(ToolCall("background_result", None, handle), past)
        if outcome.is_error:
            raise ToolError(outcome.text, code="work_failed")
        return ToolAnswer(getattr(outcome, "value", None), text=outcome.text, blocks=getattr(outcome, "blocks", ()))

    async def aclose(self) -> None:
        """Wait for the work that this process has started."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _scope(context: ToolContext) -> str:
    run_id = None if context.call_context is None else context.call_context.run_id
    return f"background:{context.thread_id or run_id or context.tool}"
