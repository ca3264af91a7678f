"""The catalog of tools and the one pipeline through which each of them runs."""

from callgate.registry.catalog import Offer
from callgate.registry.pipeline import Authorize, Failure
from callgate.registry.registry import End, RunningCall, ToolRegistry
from callgate.registry.requests import Call, CallKeywords, ErrorPorts, Held, ToolInvocationRequest

__all__ = (
    "Authorize",
    "Call",
    "CallKeywords",
    "End",
    "ErrorPorts",
    "Failure",
    "Held",
    "Offer",
    "RunningCall",
    "ToolInvocationRequest",
    "ToolRegistry",
)
