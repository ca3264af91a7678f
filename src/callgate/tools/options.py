"""How a tool wants to be run: the options of `@tool` and `Tool`, checked when the tool is defined."""

import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, cast, get_args

from callgate.errors import ToolDefinitionError
from callgate.values import UNSET, Unset

__all__ = ("MAX_NAME_LENGTH", "OnOversize", "RunIn", "ToolKeywords", "ToolOptions", "check_name", "tool_options")

RunIn = Literal["inline", "thread", "process"]
OnOversize = Literal["error", "truncate", "spill"]

MAX_NAME_LENGTH: Final = 128
_NAME: Final = re.compile(r"[^\W]([\w.:/-]*[^\W])?")


class ToolKeywords(TypedDict, total=False):
    """Name the options that `@tool` and `Tool` take; `ToolOptions` says what each means."""

    kind: str
    timeout_s: float | None
    max_output_bytes: int | None
    on_oversize: OnOversize
    run_in: RunIn
    max_concurrency: int | None
    exclusive: bool
    idempotent: bool
    retries: int
    transient: tuple[type[BaseException], ...]
    needs_approval: bool | Callable[[Any], object]
    emits: Iterable[str]
    tags: Iterable[str]
    debug_steps: Iterable[str]
    max_memory_bytes: int | None
    max_cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Say how a tool is run and what a host may know of it.

    `kind` is the host's own word ("read", "write", …; "write" when nothing is said, so that nobody takes an unlabelled
    tool for harmless); `tags` and `debug_steps` are kept as data for the host. A gate uses the rest: `needs_approval` (True, or
    a function of the arguments in JSON form) has a person asked whatever the policy allows; `emits` are the labels of what
    the tool's results carry, such as "untrusted"; `exclusive` lets it run alone in its step; an `idempotent` tool may be
    run again, after a crash or up to `retries` times after an error whose class is among `transient`.

    `timeout_s` None is no limit, unset the registry's default; so is `max_output_bytes`, in UTF-8 bytes of the output's JSON
    text. `max_concurrency` bounds the calls that run at a time (None: no bound of its own).
    `max_memory_bytes` (address space) and `max_cpu_s` (processor seconds) bind each process of a `run_in="process"` tool.
    """

    kind: str = "write"
    timeout_s: float | None | Unset = UNSET
    max_output_bytes: int | None | Unset = UNSET
    on_oversize: OnOversize = "error"
    run_in: RunIn = "thread"
    max_concurrency: int | None = None
    exclusive: bool = False
    idempotent: bool = False
    retries: int = 0
    transient: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError)
    needs_approval: bool | Callable[[Any], object] = False
    emits: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    debug_steps: tuple[str, ...] = ()
    max_memory_bytes: int | None = None
    max_cpu_s: float | None = None


def check_name(name: object) -> str:
    """Give back a name that a tool may have: letters and digits of any script, `_ . : / -` inside, 128 at most.

    Raises:
        ToolDefinitionError: when `name` is another thing.
    """
    if not isinstance(name, str) or not name:
        raise ToolDefinitionError(str(name), "a tool needs a name; pass name=…")
    if len(name) > MAX_NAME_LENGTH:
        raise ToolDefinitionError(name[:40] + "…", f"the name has {len(name)} characters; {MAX_NAME_LENGTH} are allowed")
    if not _NAME.fullmatch(name):
        raise ToolDefinitionError(name, "a name holds letters, digits and _ only, with . : / - inside; pass another name=…")
    return name


def tool_options(name: str, keywords: ToolKeywords, *, is_async: bool) -> ToolOptions:
    """Check the options of a tool and fill in the defaults: async tools run inline, others in a thread.

    Raises:
        ToolDefinitionError: when an option is out of range, or contradicts another.
    """
    given: dict[str, object] = {"run_in": "inline" if is_async else "thread", **keywords}
    for key in ("tags", "debug_steps", "emits"):
        given[key] = _texts(name, key, given.get(key, ()))
    for key in ("tags", "emits"):
        given[key] = frozenset(given[key])  # type: ignore[call-overload]  # _texts gave a tuple of text
    options = ToolOptions(**given)  # type: ignore[arg-type]  # the checks below look at every value
    _check_values(name, options)
    _check_labels(name, options.emits)
    if "transient" in keywords and not options.retries:
        raise ToolDefinitionError(name, "transient needs retries: without them no error is tried again")
    _check_place(name, options, is_async=is_async)
    return options


def _texts(name: str, key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ToolDefinitionError(name, f"{key} must be a list of texts, not {type(value).__name__}")
    texts = tuple(cast("Iterable[object]", value))
    if not all(isinstance(text, str) for text in texts):
        raise ToolDefinitionError(name, f"{key} must hold texts only")
    return cast("tuple[str, ...]", texts)


def _check_labels(name: str, labels: Iterable[str]) -> None:
    for label in labels:
        if label.split() != [label]:
            raise ToolDefinitionError(name, f'emits must hold words such as "untrusted", not {label!r}')


def _check_values(name: str, options: ToolOptions) -> None:
    kind: object = getattr(options, "kind")  # noqa: B009 - untyped callers: its type is not to be believed
    if not isinstance(kind, str) or not kind:
        raise ToolDefinitionError(name, 'kind must be a word such as "read" or "write"')
    for key in ("timeout_s", "max_cpu_s"):
        _check_positive(name, key, getattr(options, key), (int, float))
    for key in ("max_output_bytes", "max_concurrency", "max_memory_bytes"):
        _check_positive(name, key, getattr(options, key), (int,))
    _check_transient(name, options)
    for key in ("exclusive", "idempotent", "needs_approval"):
        if key == "needs_approval" and callable(options.needs_approval):
            continue
        if not isinstance(getattr(options, key), bool):
            raise ToolDefinitionError(name, f"{key} must be True or False, not {getattr(options, key)!r}")
    retries: object = getattr(options, "retries")  # noqa: B009 - as above
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise ToolDefinitionError(name, f"retries must be a whole number from 0, not {options.retries!r}")
    if options.on_oversize not in get_args(OnOversize):
        raise ToolDefinitionError(name, f"on_oversize must be one of {get_args(OnOversize)}, not {options.on_oversize!r}")
    if options.run_in not in get_args(RunIn):
        raise ToolDefinitionError(name, f"run_in must be one of {get_args(RunIn)}, not {options.run_in!r}")


def _is_exception_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def _check_transient(name: str, options: ToolOptions) -> None:
    kinds: Any = options.transient
    if type(kinds) is not tuple or not all(map(_is_exception_class, cast("tuple[object, ...]", kinds))):
        raise ToolDefinitionError(name, f"transient must be a tuple of exception classes, not {options.transient!r}")
    if inspect.iscoroutinefunction(options.needs_approval):
        raise ToolDefinitionError(name, "needs_approval must be a plain function; an async one cannot be asked")


def _check_positive(name: str, key: str, value: object, kinds: tuple[type, ...]) -> None:
    if value is None or value is UNSET:
        return
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:  # type: ignore[operator]  # a number here
        wanted = "a whole number" if kinds == (int,) else "a number"
        raise ToolDefinitionError(name, f"{key} must be {wanted} above 0, or None, not {value!r}")


def _check_place(name: str, options: ToolOptions, *, is_async: bool) -> None:
    if is_async and options.run_in == "thread":
        raise ToolDefinitionError(name, 'an async tool runs on the event loop: use run_in="inline", or "process" to isolate it')
    if not is_async and options.run_in == "inline" and isinstance(options.timeout_s, int | float):
        reason = 'a sync tool that runs inline cannot be stopped at timeout_s: use run_in="thread" or "process"'
        raise ToolDefinitionError(name, reason)
    if options.run_in != "process" and (options.max_memory_bytes or options.max_cpu_s):
        raise ToolDefinitionError(name, 'max_memory_bytes and max_cpu_s need run_in="process"')
    if options.retries and not options.idempotent:
        raise ToolDefinitionError(name, "retries need idempotent=True: what cannot be repeated is not run twice")
