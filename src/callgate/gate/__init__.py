"""Policy, approvals and journal around the registry: what every door calls."""

from callgate.gate.background import Background
from callgate.gate.content import KeepContent
from callgate.gate.gate import Gate
from callgate.gate.gated import PlaceKeywords
from callgate.gate.hooks import GateHook, HookCall, Next
from callgate.gate.outcomes import Denied, Failed, Outcome, Pending, Succeeded
from callgate.gate.retrying import Backoff

__all__ = (
    "Background",
    "Backoff",
    "Denied",
    "Failed",
    "Gate",
    "GateHook",
    "HookCall",
    "KeepContent",
    "Next",
    "Outcome",
    "Pending",
    "PlaceKeywords",
    "Succeeded",
)
