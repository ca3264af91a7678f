"""The keeper: a small process between the parent and one worker, whose only work is to leave nothing behind.

The parent starts this file by its path. It forks the worker while it is still small and has one thread, and then waits for
one of two things: the end of the worker, or the end of its control socket, which comes when the parent hangs up, exits or
is killed with SIGKILL. In both cases it kills whatever the worker left, reaps it, and ends.

Why a process of its own: a worker in a C-level busy loop cannot watch anything, and a worker that crashed cannot clean up.
The parent's threads come and go, so the kernel's parent-death signal, which is tied to the thread that started the child,
cannot be used between the parent and a worker; between keeper and worker, where each has one thread then, it can.

On Linux the keeper is a child subreaper: descendants that called `setsid` or forked twice become its children when their
parent dies, so none is missed. Elsewhere it can kill the worker's process group only, and a descendant that left the group
lives on.

This file imports the standard library only and nothing of callgate, so that the keeper starts fast and stays small.
"""

import contextlib
import ctypes
import errno
import marshal
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any, Final

__all__ = ("STATUS", "descendants", "kill_all", "kill_group", "main")

STATUS: Final = struct.Struct("i")  # the control socket carries the worker's process id, later its wait status

_LINUX: Final = sys.platform == "linux"
_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
_SET_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER
_LENGTH: Final = struct.Struct(">Q")
_END_S: Final = 5.0  # a process in an uninterruptible wait cannot be killed; the keeper gives up on it then
_PASS_MS: Final = 5.0


def main() -> None:
    """Fork the worker and keep it: `process_keeper.py CONNECTION_FD CONTROL_FD`."""
    connection, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent's mask, or an ignored SIGCHLD, would be inherited
    wake = _wake_at_child_end()
    _prctl(_SET_SUBREAPER, 1)
    keeper = os.getpid()
    worker = os.fork()
    if worker == 0:
        _become_worker(connection, control, keeper)
    connection.close()
    _keep(worker, control, wake)
    os._exit(0)


def descendants(root: int) -> Iterator[int]:
    """Give the process ids of all descendants of `root`, zombies included (Linux; elsewhere none)."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    pending = list(children.get(root, ()))
    while pending:
        process = pending.pop()
        pending += children.get(process, ())
        yield process


def kill_all(processes: Iterator[int]) -> None:
    """Send SIGKILL to each; one that is gone, or another user's, is passed over."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def kill_group(group: int) -> None:
    """Send SIGKILL to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _parents() -> Iterator[tuple[int, int]]:
    if not _LINUX:
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is not loaded here
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                yield int(name), int(file.read().rpartition(b")")[2].split()[1])


def _prctl(option: int, argument: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _wake_at_child_end() -> int:
    readable, writable = os.pipe()
    for end in (readable, writable):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)  # only a signal with a handler is written to the pipe
    return readable


def _nothing(_number: int, _frame: Any) -> None:
    """Let the wakeup descriptor do the work."""


def _keep(worker: int, control: socket.socket, wake: int) -> None:
    _tell(control, worker)
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    poller.register(control, select.POLLIN)
    hung_up, status = False, None
    while not hung_up and status is None:
        hung_up = any(fd != wake for fd, _ in poller.poll())
        _drain(wake)
        status = _reap(worker)[1]
    poller.unregister(control)
    _end_tree(worker, poller, wake, alive=status is None)
    if status is not None:
        _tell(control, status)


def _tell(control: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        control.sendall(STATUS.pack(number))


def _drain(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(wake, 512):
            pass


def _reap(worker: int) -> tuple[bool, int | None]:
    """Reap what has ended; tell whether any child is left, and the worker's wait status if it was among them."""
    status: int | None = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                status = ended[1]
    except ChildProcessError:
        return False, status
    return True, status


def _end_tree(worker: int, poller: select.poll, wake: int, *, alive: bool) -> None:
    # A worker that was reaped has given its number back; only where nothing but its group is known is it used again.
    if alive or not _LINUX:
        kill_group(worker)
    deadline = time.monotonic() + _END_S
    while _reap(worker)[0] and time.monotonic() < deadline:
        poller.poll(_PASS_MS)
        _drain(wake)
        kill_all(descendants(os.getpid()))


def _become_worker(connection: socket.socket, control: socket.socket, keeper: int) -> None:
    try:
        control.close()
        _settle(keeper)
        setting = marshal.loads(_receive(connection))  # noqa: S302 - sent by the parent, which chose this program too
        sys.path[:] = setting["path"]
        sys.argv[:] = setting["argv"]
        with contextlib.suppress(OSError):
            os.chdir(setting["directory"])
        # The parent's sys.path has only now come, and with it the way to callgate.
        from callgate.running.worker import serve  # noqa: PLC0415

        serve(connection, setting["token"], setting["main"])
    except BaseException:  # noqa: BLE001 - a fork must not return into the keeper's code, whatever happens
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _settle(keeper: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    # Orphans of a tool come to the worker first, which so learns that a call left something behind.
    _prctl(_SET_SUBREAPER, 1)
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    # What a tool prints must not reach the parent's output, which may carry a protocol of its own (case i15).
    with contextlib.suppress(OSError):
        os.dup2(2, 1)


def _receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise OSError(errno.ECONNRESET, "the parent is gone")
        data += chunk
    return data


if __name__ == "__main__":
    main()
