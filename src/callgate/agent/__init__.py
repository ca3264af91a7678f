"""The loop of a model and its tools, with runs that pause and are resumed. It needs the extra `agent`."""

from callgate.agent.extra import require_agent_extra

require_agent_extra()

from callgate.agent.client import LLMClient  # noqa: E402 - the packages are there
from callgate.agent.events import (  # noqa: E402
    AgentEvent,
    CallFinished,
    CallPending,
    CallProgress,
    CallStarted,
    ModelAnswered,
    RunEnded,
    RunPaused,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from callgate.agent.hooks import RunHooks, create_run_hooks  # noqa: E402
from callgate.agent.prepared import PreparedCall, prepare_call  # noqa: E402
from callgate.agent.run import PendingCall, Run  # noqa: E402
from callgate.agent.state import RunState  # noqa: E402
from callgate.agent.tools import RunTools, split_run_tools  # noqa: E402

__all__ = (
    "AgentEvent",
    "CallFinished",
    "CallPending",
    "CallProgress",
    "CallStarted",
    "LLMClient",
    "ModelAnswered",
    "PendingCall",
    "PreparedCall",
    "Run",
    "RunEnded",
    "RunHooks",
    "RunPaused",
    "RunState",
    "RunTools",
    "StepStarted",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "create_run_hooks",
    "prepare_call",
    "split_run_tools",
)
