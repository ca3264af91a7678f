"""Take what a tool author's own checks raise, however odd it is, without letting it out or telling the model of it.

The author's objects may lie about their class and raise from any method. So classes are looked at by `type`, what is
read from an error is read once and guarded, and only exact `str` is passed on.
"""

from typing import Final, cast

from callgate.errors import InvalidInputError, Problem, ToolError

__all__ = ("PROGRAM_STOPS", "problems_for_model", "words_for_model")

PROGRAM_STOPS: Final = (KeyboardInterrupt, SystemExit)
"""What is meant for the program and not for the call."""

_MAX_WORDS: Final = 2000


def words_for_model(error: BaseException) -> str:
    """Give what an author wrote for the model, the message of a `ToolError`; "" for any other error."""
    if not issubclass(type(error), ToolError):
        return ""
    return _plain_text(_attribute(error, "user_message")) or ""


def problems_for_model(error: BaseException) -> tuple[Problem, ...]:
    """Give the problems of an `InvalidInputError` that an author raised; none for any other error."""
    if not issubclass(type(error), InvalidInputError):
        return ()
    problems = _attribute(error, "problems")
    if type(problems) is not tuple:
        return ()
    return tuple(problem for problem in cast("tuple[object, ...]", problems) if type(problem) is Problem and _is_plain(problem))


def _is_plain(problem: Problem) -> bool:
    return all(_plain_text(part) == part for part in (problem.path, problem.expected, problem.got, problem.hint))


def _attribute(error: BaseException, name: str) -> object:
    try:
        return getattr(error, name, None)
    except PROGRAM_STOPS:
        raise
    except BaseException:  # noqa: BLE001 - a property of the author's
        return None


def _plain_text(text: object) -> str | None:
    if type(text) is not str:
        return None
    return text[:_MAX_WORDS].encode("utf-8", "replace").decode()
