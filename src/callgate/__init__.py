"""callgate: the one gate that every tool call of a language model goes through.

Define tools with `@tool` or `Tool(...)`, put them into a `ToolRegistry`, and call them by name with what a model sent:
validated, authorised, bounded in time and size, recorded, and stopped for real.
"""

from callgate.errors import (
    AbortedError,
    CallgateError,
    DuplicateToolError,
    InvalidInputError,
    InvalidOutputError,
    OutputTooLargeError,
    Problem,
    RegistrySealedError,
    ToolDefinitionError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolNotFoundError,
    ToolNotOfferedError,
    ToolTimeoutError,
    ToolUnavailableError,
    UsageError,
)
from callgate.registry import Call, ErrorPorts, Offer, RunningCall, ToolInvocationRequest, ToolRegistry
from callgate.reporting import ToolErrorReport, format_tool_error
from callgate.signals import AbortController, AbortSignal
from callgate.tools.context import ToolContext
from callgate.tools.spill import MemorySpill, SpillStore
from callgate.tools.tool import Tool, tool
from callgate.values import (
    BinaryBlock,
    CallContext,
    ContentBlock,
    ExecutionOptions,
    ImageBlock,
    TextBlock,
    ToolAnswer,
    ToolCallRecord,
    ToolReply,
    ToolResult,
)

__all__ = (
    "AbortController",
    "AbortSignal",
    "AbortedError",
    "BinaryBlock",
    "Call",
    "CallContext",
    "CallgateError",
    "ContentBlock",
    "DuplicateToolError",
    "ErrorPorts",
    "ExecutionOptions",
    "ImageBlock",
    "InvalidInputError",
    "InvalidOutputError",
    "MemorySpill",
    "Offer",
    "OutputTooLargeError",
    "Problem",
    "RegistrySealedError",
    "RunningCall",
    "SpillStore",
    "TextBlock",
    "Tool",
    "ToolAnswer",
    "ToolCallRecord",
    "ToolContext",
    "ToolDefinitionError",
    "ToolDeniedError",
    "ToolError",
    "ToolErrorReport",
    "ToolFailedError",
    "ToolInvocationRequest",
    "ToolNotFoundError",
    "ToolNotOfferedError",
    "ToolRegistry",
    "ToolReply",
    "ToolResult",
    "ToolTimeoutError",
    "ToolUnavailableError",
    "UsageError",
    "format_tool_error",
    "tool",
)
