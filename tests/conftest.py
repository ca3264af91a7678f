"""Settings that all tests share."""

import re
import signal

import pytest
from hypothesis import settings

# No deadline for one example: on a busy machine it would judge the machine. In CI hypothesis loads its own profile "ci",
# which has none either and draws the same examples each time.
settings.register_profile("default", deadline=None, print_blob=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a script started this in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Refuse an id that is another one in each process: tests run side by side only under the same ids."""
    for item in items:
        if re.search(r" at 0x[0-9a-f]{6,}", item.nodeid):
            raise pytest.UsageError(f"give the parameters ids of their own, without addresses: {item.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable():
    """Escape lone surrogates, which tests write on purpose: a report on its way to the process that prints it has none."""
    return escaped((yield))


def escaped(part):
    match part:
        case str():
            return part.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {escaped(name): escaped(inner) for name, inner in part.items()}
        case list() | tuple():
            return type(part)(map(escaped, part))
        case _:
            return part
