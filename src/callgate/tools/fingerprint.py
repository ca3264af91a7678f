"""`fingerprint_of`: tell a tool's definition from another one of the same name, in every process alike."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Protocol, cast

from callgate.tools.options import ToolOptions

__all__ = ("fingerprint_of",)

_COVERED: Final = ("kind", "timeout_s", "run_in", "exclusive", "idempotent")


class Defined(Protocol):
    """Be what a fingerprint covers."""

    name: str
    description: str | None
    options: ToolOptions
    input: Any
    output: Any


def fingerprint_of(tool: Defined) -> str:
    """Digest what a model and a reviewer are told of a tool, and how it is run (SHA-256 in hex)."""
    options = tool.options
    covered = {
        "name": tool.name,
        "description": tool.description,
        "input": tool.input.schema,
        "output": None if tool.output is None else tool.output.schema,
        "options": {key: str(getattr(options, key)) for key in _COVERED},
        "emits": sorted(options.emits),
        "asks": options.needs_approval is not False,
    }
    return sha256(json.dumps(covered, sort_keys=True, default=_spelt).encode("utf-8", "surrogatepass")).hexdigest()


def _spelt(value: object) -> object:
    """Write what a schema may hold that JSON does not: a default of any type, by its class alone."""
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else f"({type(value).__name__})"
