"""How a job in a worker process can end without a value, beside the exceptions of the tool itself.

The tree::

    ProcessError
    ├── ProcessTimeout         the time limit or the deadline passed; the process tree is dead
    ├── ProcessAborted         the abort signal was given; the process tree is dead
    ├── ProcessDied            the process gave no answer: it exited, crashed, was killed, or never began
    ├── ProcessDataError       something could not be pickled, or could not be loaded on the other side
    ├── ProcessOutputTooLarge  a generator gave more than is kept; the process tree is dead
    └── RemoteToolError        the tool raised an exception that could not be pickled or loaded

The registry turns them into `ToolError`s; their texts are for the server's log, never for a model.
"""

__all__ = (
    "ProcessAborted",
    "ProcessDataError",
    "ProcessDied",
    "ProcessError",
    "ProcessOutputTooLarge",
    "ProcessTimeout",
    "RemoteToolError",
)


class ProcessError(Exception):
    """Stand at the root of what the process runner raises."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ProcessError], args: tuple[object, ...], state: dict[str, object]) -> ProcessError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ProcessTimeout(ProcessError):
    """Tell that the body ran for `limit_s` seconds and was killed, its children too.

    With `by_deadline` it was the deadline of the call, which was `limit_s` seconds away when the call came; `began` says
    whether the tool's body had begun by then.
    """

    def __init__(self, limit_s: float, *, by_deadline: bool = False, began: bool = True) -> None:
        super().__init__(f"the process was killed at its {'deadline after' if by_deadline else 'limit of'} {limit_s:g} s")
        self.limit_s = limit_s
        self.by_deadline = by_deadline
        self.began = began


class ProcessAborted(ProcessError):
    """Tell that the abort signal was given and the process killed, its children too; `reason` is the signal's."""

    def __init__(self, reason: BaseException | None) -> None:
        super().__init__("the process was killed because the call was aborted")
        self.reason = reason


class ProcessDied(ProcessError):
    """Tell that the process gave no answer and that nothing of it is left.

    `reason` is a sentence without its full stop. `exit_code` is set when the process, or the tool by `sys.exit`, ended
    with one; `signal` is the number of the signal that killed it. `began` says whether the tool's body had begun.
    """

    def __init__(self, reason: str, *, exit_code: int | None = None, signal: int | None = None, began: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code
        self.signal = signal
        self.began = began


class ProcessDataError(ProcessError):
    """Tell that `what` ("the function", "the arguments", "the result", "a progress item") could not cross over.

    `reason` names the exception that said so. When `what` is the function or the arguments, nothing has run.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} could not be passed between processes: {reason}")
        self.what = what
        self.reason = reason


class ProcessOutputTooLarge(ProcessError):
    """Tell that the items of a generator came to `size_bytes` bytes, pickled, where `limit_bytes` are kept.

    The process was killed then, its children too; what the tool did until then stands.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"the process was killed when its items came to {size_bytes} bytes; the limit is {limit_bytes} bytes")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class RemoteToolError(ProcessError):
    """Stand for an exception of the tool that could not be rebuilt here; `type_name` and `text` are the original's."""

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text
