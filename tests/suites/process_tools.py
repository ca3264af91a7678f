"""Tools of the process suite, which worker processes import by name."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from pydantic import BaseModel

from callgate import ToolContext, ToolError, tool

ENDLESS = 10**15
IN_C = f"sum(range({ENDLESS}))"


class Order(BaseModel):
    sku: str
    count: int = 1


@tool(run_in="process")
def whereabouts() -> int:
    return os.getpid()


@tool(run_in="process")
async def whereabouts_async() -> int:
    return os.getpid()


@tool(run_in="process")
def total(orders: list[Order]) -> int:
    assert all(isinstance(order, Order) for order in orders)
    return sum(order.count for order in orders)


@tool(run_in="process", timeout_s=0.4)
def spin_with_children(context: ToolContext) -> int:
    """Hold the process in one call of C code, with a child in its group and one in a session of its own."""
    children = [subprocess.Popen([sys.executable, "-c", IN_C], start_new_session=apart) for apart in (False, True)]
    context.progress([os.getpid(), *(child.pid for child in children)])
    return sum(range(ENDLESS))


@tool(run_in="process", timeout_s=None)
def spin_until_aborted(context: ToolContext) -> int:
    child = subprocess.Popen([sys.executable, "-c", IN_C], start_new_session=True)
    context.progress([os.getpid(), child.pid])
    return sum(range(ENDLESS))


@tool(run_in="process", timeout_s=0.4)
def ignore_every_signal(context: ToolContext) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    context.progress([os.getpid()])
    while True:
        time.sleep(60)


@tool(run_in="process")
def end(how: str) -> None:
    match how:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "leave":
            os._exit(11)
        case "exit":
            sys.exit("secret words")
        case "exit in peace":
            sys.exit(0)
        case "interrupt":
            raise KeyboardInterrupt
        case "exit by a thread":
            threading.Thread(target=os._exit, args=(3,)).start()
            time.sleep(60)


@tool(run_in="process", max_memory_bytes=400 << 20, timeout_s=None)
def eat_memory(megabytes: int) -> int:
    return len(bytearray(megabytes << 20))


@tool(run_in="process", max_cpu_s=1, timeout_s=None)
def eat_cpu(context: ToolContext) -> int:
    context.progress([os.getpid()])
    return sum(range(ENDLESS))


@tool(run_in="process", timeout_s=30)
def show_context(context: ToolContext) -> dict[str, object]:
    call = context.call_context
    return {
        "tool": context.tool,
        "invocation_id": context.invocation_id,
        "thread_id": context.thread_id,
        "user_context": context.user_context,
        "call_id": None if call is None else call.call_id,
        "attempt": None if call is None else call.attempt,
        "remaining_s": context.remaining_s(),
        "aborted": context.signal.aborted,
        "process": os.getpid(),
    }


@tool(run_in="process")
def count(to: int, context: ToolContext):
    for number in range(to):
        context.progress({"before": number})
        yield number


@tool(run_in="process")
async def count_async(to: int):
    for number in range(to):
        yield number


@tool(run_in="process", timeout_s=None)
def count_for_ever():
    number = 0
    while True:
        yield number
        number += 1
        time.sleep(0.001)


@tool(run_in="process")
def give_unpicklable():
    return lambda: None


@tool(run_in="process")
def give_what_cannot_be_loaded():
    return Unloadable()


class Unloadable:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise RuntimeError("not in your process")


@tool(run_in="process")
def tell_unpicklable(context: ToolContext) -> str:
    context.progress(lambda: None)
    return "told"


class Strange(Exception):
    def __init__(self, one, two):
        super().__init__("secret words")


@tool(run_in="process")
def fail(how: str) -> None:
    if how == "on purpose":
        raise ToolError("No such order.", code="no_order", status=404)
    if how == "unpicklable":
        raise ValueError("secret words", lambda: None)
    if how == "strange":
        raise Strange(1, 2)
    if how == "group":
        raise ExceptionGroup("secret words", [ValueError("secret words")])
    raise ValueError("secret words")


@tool(run_in="process", max_concurrency=2)
def meet(path: str) -> int:
    """Leave a mark, and wait until there are two."""
    folder = Path(path)
    (folder / str(os.getpid())).touch()
    end_s = time.monotonic() + 20
    while len(list(folder.iterdir())) < 2 and time.monotonic() < end_s:
        time.sleep(0.002)
    return len(list(folder.iterdir()))
