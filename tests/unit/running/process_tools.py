"""Functions and values that the tests of the process runner send into worker processes."""

import _thread
import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

from callgate.errors import ToolError
from callgate.running.process_channel import Channel
from callgate.running.processes import ProcessJob, ProcessPool
from callgate.signals import AbortSignal
from callgate.tools.context import ToolContext

ENDLESS = 10**15


def add(a, b=1):
    return a + b


def process_id():
    return os.getpid()


def tell_id():
    yield os.getpid()


def session_and_group():
    return os.getpid(), os.getsid(0), os.getpgid(0)


async def add_async(a, b=1):
    await asyncio.sleep(0)
    return a + b


def give_awaitable(a):
    return add_async(a)


def count(n):
    yield from range(n)


async def count_async(n):
    for number in range(n):
        await asyncio.sleep(0)
        yield number


def identity(value):
    return value


def big(size):
    return b"x" * size


def echo_size(data):
    return len(data)


def print_much():
    for stream in (sys.stdout, sys.stderr):
        print("noise " * 3, file=stream)
    os.write(1, b"raw noise\n")
    subprocess.run(["echo", "child noise"], check=True)
    return "quiet"


# Context


def make_context(data, progress):
    return {"data": data, "progress": progress}


def use_context(a, *, context):
    context["progress"]({"half": a})
    return a, context["data"]["thread"]


def progress_from_a_thread_after_the_end(*, context):
    _thread.start_new_thread(_late, (context["progress"],))  # of a kind that `threading` does not know of
    return os.getpid()


def _late(progress):
    while True:
        progress("late")
        time.sleep(0.001)


def unpicklable_progress(*, context):
    context["progress"](lambda: None)


# Exceptions


class Strange(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


class Explosive(Exception):
    def __reduce__(self):
        return _explode, ()


class ExitOnLoad(Exception):
    def __reduce__(self):
        return os._exit, (7,)


class HangOnLoad(Exception):
    def __reduce__(self):
        return time.sleep, (3600,)


class Holding(Exception):
    def __init__(self):
        super().__init__("held")
        self.lock = threading.Lock()


class Mute(Exception):
    def __reduce__(self):
        raise RuntimeError

    def __str__(self):
        raise RuntimeError


def _explode():
    raise RuntimeError("boom")


def raise_strange():
    raise Strange("one", "two")


def raise_class(kind):
    raise kind


def raise_own_error():
    raise ToolError("no such order")


def raise_chained():
    try:
        raise KeyError("the first")
    except KeyError as error:
        raise ValueError("the second") from error


def raise_cancelled():
    raise asyncio.CancelledError


# Results that do not travel


def unpicklable_result():
    return threading.Lock()


class ExplodesThere:
    """Loads in no process that has the mark of the tests."""

    def __reduce__(self):
        return _explode, ()


def explosive_result():
    return ExplodesThere()


class ExitsThere:
    def __reduce__(self):
        return sys.exit, (3,)


def exiting_result():
    return ExitsThere()


# Ends of a process


def exit_hard(code):
    os._exit(code)


def exit_python(code):
    sys.exit(code)


def interrupt():
    raise KeyboardInterrupt


def segfault():
    ctypes.string_at(0)


def kill_self(number):
    os.kill(os.getpid(), number)
    time.sleep(3600)


def kill_keeper():
    yield os.getpid()
    os.kill(os.getppid(), signal.SIGKILL)
    sum(range(ENDLESS))


def kill_own_group(number):
    os.killpg(0, number)
    time.sleep(3600)


def die_after_the_answer(size, *, context):
    Channel.receive = lambda _channel: os._exit(3)
    context["progress"](os.getpid())
    return b"z" * size


def connections():
    return [fd for fd in range(3, 256) if _is_socket(fd)]


def _is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def close_everything():
    os.closerange(3, 256)
    time.sleep(3600)


def write_garbage(data, then_s):
    for fd in connections():
        os.write(fd, data)
    time.sleep(then_s)
    return "garbage was overlooked"


def fork_and_return_twice():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return "the parent's"
    return "the child's"


# More than is kept


def flood(size: int):
    """Tell the process id, then give items for ever."""
    yield os.getpid()
    while True:
        yield b"x" * size


async def flood_async(size: int):
    for item in flood(size):
        yield item


def give_items(number, size):
    for _ in range(number):
        yield bytes(size)


def tell_much(number, size, *, context):
    for _ in range(number):
        context["progress"](bytes(size))
    return "told"


# Work that does not stop


def sleep_and_tell():
    yield os.getpid()
    time.sleep(3600)


def spin_in_c():
    yield os.getpid()
    sum(range(ENDLESS))


def ignore_signals_and_spin():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    yield from spin_in_c()


async def swallow_cancellation():
    yield os.getpid()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def family():
    """Tell the ids of a child, one in a session of its own, one forked twice into a session of its own; then spin."""
    yield os.getpid()
    yield os.getppid()
    yield plain_child()
    yield subprocess.Popen(["sleep", "3600"], start_new_session=True).pid
    yield daemon()
    sum(range(ENDLESS))


def plain_child():
    return subprocess.Popen(["sleep", "3600"]).pid


def daemon():
    """Start a process the way daemons are: its parent is gone, its session and group are its own."""
    readable, writable = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writable, str(os.getpid()).encode())
            os.execvp("sleep", ["sleep", "3600"])
        os._exit(0)
    os.waitpid(first, 0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        return int(pipe.read(20))


def forking_family():
    """Keep forking children in new sessions while the kill is under way."""
    yield os.getpid()
    while True:
        if os.fork() == 0:
            os.setsid()
            for _ in range(3):
                if os.fork() == 0:
                    time.sleep(3600)
            time.sleep(3600)
        time.sleep(0.005)


def daemon_then_die():
    yield daemon()
    os._exit(5)


def leave_a_thread():
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    return os.getpid()


def leave_a_child():
    return os.getpid(), plain_child()


def leave_a_daemon():
    return os.getpid(), daemon()


# Limits


def allocate(size):
    return len(bytearray(size))


def allocate_for_ever():
    hoard = []
    while True:
        hoard.append(bytearray(1 << 20))


def child_allocates(size):
    code = f"bytearray({size})"
    return subprocess.run([sys.executable, "-S", "-c", code], stderr=subprocess.DEVNULL, check=False).returncode


def use_cpu(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return "used"


# What comes before the body


def take_note(path):
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return os.getpid()


def with_context(context: ToolContext) -> int:
    """Run only when the context could be loaded."""
    assert context.user_context is None
    return os.getpid()


class SlowToLoad:
    def __init__(self, seconds):
        self.seconds = seconds

    def __reduce__(self):
        return time.sleep, (self.seconds,)


class KillsItsLoader:
    def __reduce__(self):
        return os._exit, (9,)


class UnknownThere:
    def __reduce__(self):
        return _explode, ()


# Descriptors and nesting


def open_files():
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            found.append(str(fd.readlink()))
    return found


def nested():
    pool = ProcessPool()
    try:
        return os.getpid(), pool.run(ProcessJob(function=process_id), stop=AbortSignal())
    finally:
        pool.close()


def nested_and_hang():
    pool = ProcessPool()
    yield from pool.run(ProcessJob(function=nested_ids), stop=AbortSignal())
    pool.run(ProcessJob(function=time.sleep, args=(3600,)), stop=AbortSignal())


def nested_ids():
    yield os.getpid()
    yield os.getppid()


class Bound:
    def __init__(self, base):
        self.base = base

    def add(self, a):
        return self.base + a

    @classmethod
    def name(cls):
        return cls.__name__

    @staticmethod
    def double(a):
        return a * 2

    def __call__(self, a):
        return self.base * a


class Locked:
    def __init__(self):
        self.lock = threading.Lock()

    def method(self):
        return 1


def outer():
    def inner():
        return 1

    return inner


def original():
    return 1


shadowed = original


def original():
    return 2


a_socket = socket.socket  # a builtin class as a function
