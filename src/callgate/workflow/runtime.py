"""What a node is given beside the state: tools behind the one gate, agents, diagnostics, the signal, the round. Row W2."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from callgate.diagnostics import DiagnosticContext
from callgate.errors import UsageError
from callgate.gate import Denied, Failed, Gate, Outcome, Pending, PlaceKeywords, Succeeded
from callgate.gate.stored_runs import known
from callgate.gate.waiting import assured
from callgate.profiles import Profile
from callgate.signals import AbortSignal
from callgate.tools.tool import Tool
from callgate.values import Caller, ToolCall, digest_of_input

__all__ = ("AgentRunner", "NodeAgent", "NodePaused", "NodeTools", "Runtime")


T = TypeVar("T")


class NodePaused(BaseException):
    """Leave a node in which something waits for people: no `except Exception` of the node stands in the way."""

    def __init__(self, pending: tuple[str, ...]) -> None:
        super().__init__()
        self.pending = pending


class AgentRunner(Protocol):
    """Run an agent for a node, or go on with its run; give the run, as `LLMClient` does."""

    def __call__(self, gate: Gate, run_id: str, beginning: Mapping[str, Any], /) -> Awaitable[Any]:
        """Run it."""
        ...


@dataclass(slots=True, eq=False)
class NodeTools:
    """Let a node call tools. Each call goes through the gate, in the node's name and under the run's limits.

    A call has an id made of node, round, tool, arguments and how often the node has made this very call; so when the node is
    run again after a crash or a pause, what it has had is answered from the journal. The node is over when all its calls are,
    also those of branches that it has left behind.
    """

    gate: Gate
    caller: Caller
    place: PlaceKeywords
    where: str
    told: Callable[[Outcome], None]
    loop: asyncio.AbstractEventLoop
    remaining_s: Callable[[], float | None] = field(default=lambda: None)
    made: Counter[str] = field(default_factory=Counter[str])
    pending: list[str] = field(default_factory=list[str])
    under_way: set["asyncio.Task[Any]"] = field(default_factory=set["asyncio.Task[Any]"])
    over: bool = False

    def ids(self) -> tuple[str, ...]:
        """Give the names of the tools that there are."""
        return self.gate.registry.ids()

    def require(self, name: str) -> Tool[Any, Any]:
        """Give a tool.

        Raises:
            ToolNotFoundError: there is none of that name.
        """
        return self.gate.registry.require(name)

    async def invoke(self, name: str, arguments: object = None) -> Succeeded:
        """Call a tool, and give its value, text and receipt.

        Raises:
            ToolError: the call was refused, denied, or failed. Nothing else is raised for what a tool does.
            ConflictError: whoever has decided about the call runs it elsewhere, for more than a minute; the run can be resumed.
            UsageError: the node is over: it has ended, or its run was stopped.
        """
        outcome = await self.within(lambda: self._call(name, arguments))
        match outcome:
            case Succeeded():
                return outcome
            case Pending():
                raise NodePaused((outcome.approval_id,))
            case Failed(error=error) | Denied(error=error):
                raise error

    async def _call(self, name: str, arguments: object) -> Outcome:
        call = ToolCall(name, arguments, self._id(name, arguments))

        async def ask() -> Outcome:
            return await self.gate.call(call, caller=self.caller, **self.place)

        outcome = await known(ask, signal=self.place.get("signal"), remaining_s=self.remaining_s)
        if isinstance(outcome, Pending):
            self.pending.append(outcome.approval_id)
        self.told(outcome)
        return outcome

    async def within(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do a call or an agent's run as a part of the node.

        Whoever cancels its branch stops it, but not when another branch waits for a person: see `settle`.

        Raises:
            UsageError: the node is over; nothing was done.
        """
        call = asyncio.ensure_future(self._unless_over(work))
        self.under_way.add(call)
        call.add_done_callback(self.under_way.discard)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if not self.pending and not call.done():
                call.cancel()
                await assured(asyncio.wait((call,)))
            raise

    async def _unless_over(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self.over:
            raise UsageError("the node is over, so it can call nothing more: await every call of a node within the node")
        return await work()

    async def settle(self, *, stop: bool = False) -> None:
        """Take no further calls, and wait for those that are under way, so that all ends and requests are known; or stop them.

        A group of tasks cancels its branches when one of them pauses. What they have called goes on to its end all the same: a
        call that was cancelled would be over for good, and the node could not have its result when it runs again.
        """
        self.over = True
        cancelled: asyncio.CancelledError | None = None
        while going := [call for call in self.under_way if not call.done()]:
            if stop:
                for call in going:
                    call.cancel()
            try:
                await asyncio.wait(going)
            except asyncio.CancelledError as error:
                cancelled, stop = error, True
        if cancelled is not None:
            raise cancelled

    def invoke_blocking(self, name: str, arguments: object = None) -> Succeeded:
        """Do what `invoke` does, for a node that is no coroutine.

        Raises:
            ToolError: as `invoke`.
            UsageError: it is called on the event loop, which it would block for ever.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(self.invoke(name, arguments), self.loop).result()
        raise UsageError("an async node awaits runtime.tools.invoke(…); invoke_blocking is for nodes that are plain functions")

    def _id(self, name: str, arguments: object) -> str:
        written = _in_one_order(arguments)
        same = f"{self.where}/{name}/{digest_of_input(written.encode('utf-8', 'surrogatepass'))[:16]}"
        self.made[same] += 1
        return f"{same}/{self.made[same]}"


def _in_one_order(arguments: object) -> str:
    """Write arguments so that the same ones are written the same way, in whatever order a node has put them together."""
    try:
        text = arguments if isinstance(arguments, str) else to_json(arguments or {}, fallback=str).decode()
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (PydanticSerializationError, ValueError, RecursionError):
        return str(arguments)  # no JSON: the gate will say so


@dataclass(frozen=True, slots=True)
class NodeAgent:
    """Let a node run an agent as one of its steps, with a profile."""

    tools: NodeTools
    runner: AgentRunner | None
    profile: Profile | str | None
    run_id: str

    async def run(self, prompt: str) -> Any:
        """Run the agent, or go on with its run after a pause or a crash, and give the run.

        Raises:
            UsageError: no agent was bound: `Engine(…).bind_agent(client)`.
        """
        runner = self.runner
        if runner is None:
            raise UsageError("bind an agent first: Engine(workflow).bind_agent(LLMClient(…))")
        return await self.tools.within(lambda: self._run(runner, prompt))

    async def _run(self, runner: AgentRunner, prompt: str) -> Any:
        tools = self.tools
        facts = self.profile.facts() if isinstance(self.profile, Profile) else self.profile
        asked = digest_of_input(json.dumps([facts, prompt], sort_keys=True, default=str).encode())[:16]
        tools.made[asked] += 1
        inner = f"{self.run_id}/{tools.where}/agent/{asked}/{tools.made[asked]}"
        beginning = {
            "prompt": prompt,
            "caller": tools.caller,
            "profile": self.profile,
            "signal": tools.place.get("signal"),
            "thread_id": tools.place.get("thread_id"),
        }
        run = await runner(tools.gate, inner, beginning)
        if run.status == "paused":
            waiting = [each.approval_id for each in run.pending]
            tools.pending += waiting
            raise NodePaused(tuple(waiting))
        return run


@dataclass(frozen=True, slots=True)
class Runtime:
    """Be what a node is given beside the state; it injects nothing by hand."""

    tools: NodeTools
    signal: AbortSignal | None
    round: int
    node: str
    run_id: str
    runner: AgentRunner | None = field(default=None, repr=False)

    @property
    def diagnostics(self) -> DiagnosticContext:
        """The scope of the node, for what it wants to have observed."""
        return self.tools.gate.registry.diagnostics.child(f"{self.run_id}/{self.tools.where}")

    def agent(self, profile: Profile | str | None = None) -> NodeAgent:
        """Give an agent of a profile: `await runtime.agent("support").run("…")`."""
        return NodeAgent(self.tools, self.runner, profile, self.run_id)
