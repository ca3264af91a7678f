"""Tell the facts that the figures depend on: machine, Python, versions of everything measured."""

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ("Required", "machine_facts", "required_packages", "versions")

_MEASURED = (
    "callgate",
    "pydantic",
    "pydantic-core",
    "openai-agents",
    "pydantic-ai-slim",
    "mcp",
    "fastmcp",
    "langchain-core",
    "langgraph",
    "langgraph-prebuilt",
)


@dataclass(frozen=True, slots=True)
class Required:
    """Name the packages that a distribution needs: what it asks for itself, and all that comes with it."""

    direct: tuple[str, ...]
    all: tuple[str, ...]


def machine_facts() -> str:
    """Tell cores, processor, system and Python in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{cores} cores, {platform.machine()}, {platform.system()}; {python}"


def versions() -> dict[str, str]:
    """Give the version of each distribution that is measured, or "not installed"."""
    return {name: _version(name) for name in _MEASURED}


def required_packages(distribution: str) -> Required | None:
    """Count what `distribution` needs without extras on this Python, or give None when it is not installed."""
    try:
        direct = {canonicalize_name(needed.name) for needed in _needs(distribution, frozenset())}
    except PackageNotFoundError:
        return None
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(distribution, frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        for needed in _needs(name, extras):
            key = (canonicalize_name(needed.name), frozenset(needed.extras))
            if key not in seen:
                seen.add(key)
                waiting.append(key)
    return Required(tuple(sorted(direct)), tuple(sorted({name for name, _ in seen})))


def _needs(distribution: str, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in requires(distribution) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield requirement


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
