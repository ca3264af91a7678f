"""`prepare_call`: everything that a run is made of, before it begins. Source: contract row L3."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.agent.model_layer import adopted, ends_with_an_answer
from callgate.errors import UsageError
from callgate.gate import Gate
from callgate.profiles import Limits, Profile, ProfileStore
from callgate.signals import AbortSignal
from callgate.tools.tool import Tool, as_tool
from callgate.values import Caller

__all__ = ("PreparedCall", "prepare_call")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """Be a run that has not begun. `messages` is a history to go on with, in the model layer's types."""

    gate: Gate
    caller: Caller
    run_id: str
    prompt: str | None = None
    messages: Sequence[Any] = field(default=(), repr=False)
    profile: Profile | str | None = None
    profiles: ProfileStore | None = None
    thread_id: str | None = None
    tools: tuple[Tool[Any, Any], ...] = ()
    signal: AbortSignal | None = None
    limits: Limits | None = None
    instructions: str | None = None
    settings: Mapping[str, Any] | None = None
    user_context: object = field(default=None, repr=False)
    dry_run: bool = False

    async def resolved(self) -> Profile:
        """Give the profile of the run, with what the call says itself going before it.

        Raises:
            NotFoundError: there is no profile of that name.
            UsageError: the profile names a tool that there is not.
        """
        profile = self.profile
        if isinstance(profile, str):
            profiles = self.profiles or ProfileStore(self.gate.registry, store=self.gate.store)
            profile = await profiles.get(profile)
        if profile is None:
            profile = Profile(name="(none)")
        return Profile(
            name=profile.name,
            model=profile.model,
            instructions=profile.instructions if self.instructions is None else self.instructions,
            tools=profile.tools,
            policy=profile.policy,
            limits=profile.limits if self.limits is None else self.limits,
            settings={**profile.settings, **(self.settings or {})},
        )


def prepare_call(  # noqa: PLR0913 - what a run is made of, keywords most
    gate: Gate,
    *,
    caller: Caller,
    prompt: str | None = None,
    messages: Sequence[Any] = (),
    profile: Profile | str | None = None,
    profiles: ProfileStore | None = None,
    thread_id: str | None = None,
    run_id: str | None = None,
    tools: Iterable[object] = (),
    signal: AbortSignal | None = None,
    limits: Limits | None = None,
    instructions: str | None = None,
    settings: Mapping[str, Any] | None = None,
    user_context: object = None,
    dry_run: bool = False,
) -> PreparedCall:
    """Prepare a run: a prompt of the user, or a history, or both.

    A name as `profile` is looked up when the run begins: in `profiles`, or among those of the gate's store. `tools` are
    additional ones of this run; they pass through the same gate. A history that ends with calls is gone on with by making
    them: none of them counts as approved (case f19). Earlier calls that nobody answered get a result that says so.

    Raises:
        UsageError: there is neither a prompt nor a history to go on with, a message is none, or an additional tool has the
            name of a registered one. What else cannot be is refused when the run begins, and nothing is stored then.
    """
    _check_parts(prompt, caller, profile)
    if prompt is None and not messages:
        raise UsageError("a run needs a prompt, or messages to go on with")
    history = adopted(messages)
    if prompt is None and ends_with_an_answer(history):
        raise UsageError("the messages end with an answer of the model: a prompt has to say how it goes on")
    additional = tuple(map(as_tool, tools))
    gate.registry.offer(additional)
    return PreparedCall(
        gate=gate,
        caller=caller,
        run_id=run_id or f"run_{secrets.token_hex(10)}",
        prompt=prompt,
        messages=tuple(history),
        profile=profile,
        profiles=profiles,
        thread_id=thread_id,
        tools=additional,
        signal=signal,
        limits=limits,
        instructions=instructions,
        settings=settings,
        user_context=user_context,
        dry_run=dry_run,
    )


def _check_parts(prompt: object, caller: object, profile: object) -> None:
    if prompt is not None and not isinstance(prompt, str):
        raise UsageError(f"a prompt is a text, not {type(prompt).__name__}; put files and images into messages=")
    if type(caller) is not Caller:
        raise UsageError(f"caller= must be Caller(subject, roles), not {type(caller).__name__}")
    if profile is not None and not isinstance(profile, Profile | str):
        raise UsageError(f"profile= must be a Profile or the name of one, not {type(profile).__name__}")
