"""`callgate run` and `callgate resume`: an agent in the terminal, which asks the person before it for approvals."""

from types import ModuleType
from typing import Annotated

import typer

from callgate.cli.shared import Log, Place, PolicyFile, Target, gate_of, refuse, there
from callgate.cli.stored import DEFAULT_PLACE, who
from callgate.errors import CallgateError

__all__ = ("resume", "run")

Model = Annotated[
    str, typer.Option("--model", help="Such as openai:gpt-5, or file.py:attribute for a model object.", show_default=False)
]
No = Annotated[bool, typer.Option("--no-ask", help="Ask nobody here: the run is paused, to be decided elsewhere.")]


def run(
    target: Target,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the user says.", show_default=False)],
    model: Model,
    profile: Annotated[str | None, typer.Option(help="A profile of the store.")] = None,
    store: Place = DEFAULT_PLACE,
    policy: PolicyFile = None,
    caller: Annotated[str | None, typer.Option(help="On whose behalf; without it, the name of the user.")] = None,
    thread: Annotated[str | None, typer.Option(help="The conversation that the run belongs to.")] = None,
    no_ask: No = False,
    _log: Log = False,
) -> None:
    """Run an agent with the tools of TARGET, and ask here for what has to be approved.

    Exits with 0 when the run is completed, 4 when it failed or was stopped, 5 when it is paused. Ctrl-C stops it, and at a
    question leaves it paused. Without a terminal nobody is asked.
    """
    begin = _terminal().begin
    begin(
        gate_of(target, store, policy),
        model,
        {"prompt": prompt, "caller": who(caller), "profile": profile, "thread_id": thread},
        ask=not no_ask,
    )


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The id of the run.", show_default=False)],
    target: Target,
    model: Model,
    store: Place = DEFAULT_PLACE,
    policy: PolicyFile = None,
    message: Annotated[str | None, typer.Option(help="What the user says meanwhile.")] = None,
    no_ask: No = False,
    _log: Log = False,
) -> None:
    """Go on with a run that is paused, has failed for its provider, or whose process is gone."""
    go_on = _terminal().go_on
    go_on(gate_of(target, there(store), policy), model, run_id, message, ask=not no_ask)


def _terminal() -> ModuleType:
    """Load what runs agents, or end the command: its packages are an optional extra."""
    try:
        from callgate.cli import terminal  # noqa: PLC0415 - an optional extra
    except CallgateError as error:
        refuse(error.user_message)
    return terminal
