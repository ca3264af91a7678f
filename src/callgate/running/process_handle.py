"""The parent's hold on one worker process: start it, hear of its end, and end it with everything that it started."""

import contextlib
import marshal
import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from callgate.errors import UsageError
from callgate.running import process_keeper
from callgate.running.process_channel import Channel
from callgate.running.process_errors import ProcessDied
from callgate.running.process_keeper import STATUS, descendants, kill_all, kill_group
from callgate.running.process_script import find_script, refuse_while_loading

__all__ = ("WorkerHandle", "start_worker")

# How long the keeper may take to kill and reap the tree before the parent does it: together they stay below 0.5 s.
_KEEPER_GRACE_S: Final = 0.3
_WAIT_S: Final = 1.0


class WorkerHandle:
    """Hold one worker. The thread that has it may use it; `hang_up` and `end` may be called from any thread.

    `calls` counts the jobs that it has answered. `worker_pid` is its process id once the keeper has told it, `status` its
    wait status once it has ended, and `gone` says that it has, or that its keeper has.
    """

    __slots__ = ("_heard", "_keeper", "calls", "channel", "control", "gone", "poller")

    def __init__(self, keeper: subprocess.Popen[bytes], channel: Channel, control: socket.socket) -> None:
        self._keeper = keeper
        self._heard = b""
        self.channel = channel
        self.control = control
        self.calls = 0
        self.gone = False
        self.poller = select.poll()
        self.poller.register(channel.connection, select.POLLIN)
        self.poller.register(control, select.POLLIN)

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id, or None before it is known."""
        return self._number(0)

    @property
    def status(self) -> int | None:
        """The worker's wait status, or None when it has not ended or nobody could tell how."""
        return self._number(1)

    def _number(self, place: int) -> int | None:
        start = place * STATUS.size
        told = self._heard[start : start + STATUS.size]
        return int(STATUS.unpack(told)[0]) if len(told) == STATUS.size else None

    def hear(self) -> None:
        """Take in what the keeper says; call it when `control` is readable."""
        try:
            news = self.control.recv(2 * STATUS.size)
        except BlockingIOError:
            return
        except OSError:
            news = b""
        self._heard += news
        self.gone = not news or self.status is not None

    def healthy(self) -> bool:
        """Tell whether an idle worker can take a job: it is alive and has said nothing that nobody asked for."""
        for descriptor, _ in self.poller.poll(0):
            if descriptor != self.control.fileno():
                return False
            self.hear()
        return not self.gone

    def await_status(self, timeout_s: float) -> int | None:
        """Wait for the worker's wait status; None when it is alive after all, or its keeper has not survived it."""
        deadline = time.monotonic() + timeout_s
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        while not self.gone and (left := deadline - time.monotonic()) > 0:
            if poller.poll(left * 1000):
                self.hear()
        return self.status

    def hang_up(self) -> None:
        """Ask the keeper to kill the tree, and wake the thread that waits for the worker; return at once."""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill the worker and whatever it started; return when it is dead and reaped, within half a second."""
        self.hang_up()
        try:
            done = self._keeper.wait(_KEEPER_GRACE_S) == 0
        except subprocess.TimeoutExpired:
            done = False
        if not done:  # it is stuck, or was killed itself
            self._force()

    def _force(self) -> None:
        for _ in range(2):  # what was forked while the first pass ran
            kill_all(descendants(self._keeper.pid))
        if self.worker_pid is not None and self.status is None:
            kill_group(self.worker_pid)
        self._keeper.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_WAIT_S)

    def close(self) -> None:
        """Let go of the sockets. Not before `end`: the keeper would take it as a hang-up too, but nobody would wait."""
        self.channel.connection.close()
        self.control.close()

    def disown(self) -> None:
        """Let go in a forked copy of the parent, where the worker is another process's and goes on."""
        self.close()
        self._keeper.returncode = 0  # keeps Popen from warning about a child that is not ours


def start_worker() -> WorkerHandle:
    """Start a keeper, which forks the worker; return before the worker is ready.

    Raises:
        ProcessDied: when the system gives no more processes or descriptors.
        UsageError: on a system without sessions and `fork`, or in a worker that is still loading its parent's script.
    """
    refuse_while_loading()
    if not hasattr(os, "fork") or not sys.executable:
        raise UsageError('run_in="process" needs a POSIX system and a Python interpreter that can be started by its path')
    token = os.urandom(8)
    with contextlib.ExitStack() as undo:
        try:
            sockets = [undo.enter_context(end) for _ in range(2) for end in socket.socketpair()]
            keeper = _start_keeper(sockets[1], sockets[3])
        except OSError as error:
            raise ProcessDied(f"no worker process could be started: {error}", began=False) from error
        connection, theirs, control, theirs_too = sockets
        undo.pop_all()
    theirs.close()
    theirs_too.close()
    with contextlib.suppress(ConnectionError):  # the supervision hears that the worker is gone
        connection.sendall(_setting(token))
    for end in (connection, control):
        end.settimeout(0)
    return WorkerHandle(keeper, Channel(connection, token), control)


def _start_keeper(connection: socket.socket, control: socket.socket) -> "subprocess.Popen[bytes]":
    numbers = (connection.fileno(), control.fileno())
    # -P: the keeper's folder must not come before the standard library on its path.
    command = [sys.executable, *_interpreter_options(), "-P", str(Path(process_keeper.__file__).absolute()), *map(str, numbers)]
    return subprocess.Popen(  # noqa: S603 - this interpreter and our own file
        command, stdin=subprocess.DEVNULL, pass_fds=numbers, start_new_session=True
    )


def _interpreter_options() -> list[str]:
    flags = sys.flags
    options = ["-" + "O" * flags.optimize] if flags.optimize else []
    switches = {"-I": flags.isolated, "-E": flags.ignore_environment, "-s": flags.no_user_site, "-B": flags.dont_write_bytecode}
    options += [switch for switch, given in switches.items() if given]
    options += [f"-W{option}" for option in sys.warnoptions]
    given = sys._xoptions.items()  # noqa: SLF001 - documented, in spite of its name
    return options + [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in given]


def _setting(token: bytes) -> bytes:
    directory = os.getcwd()  # noqa: PTH109 - a plain string is what goes over
    path = [entry or directory for entry in sys.path]
    setting = {"token": token, "path": path, "argv": list(sys.argv), "directory": directory, "main": find_script()}
    packed = marshal.dumps(setting)
    return struct.pack(">Q", len(packed)) + packed
