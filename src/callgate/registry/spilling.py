"""The built-in tool that pages through outputs which were kept because they are too large for a model."""

from typing import Any

from callgate.tools.context import ToolContext
from callgate.tools.spill import PAGE_BYTES, READ_OUTPUT, SpillPage, SpillStore, read_output
from callgate.tools.tool import Tool
from callgate.values import ToolAnswer

__all__ = ("reader_tool",)


def reader_tool(store: SpillStore) -> Tool[Any, Any]:
    """Make the tool `read_output` for what is kept in `store`; it reads only what its own thread has kept."""

    def read(context: ToolContext, handle: str, offset: int = 0, limit: int = PAGE_BYTES) -> ToolAnswer[SpillPage]:
        """Read on in the output of an earlier call that was too large to show at once.

        Args:
            context: Whose thread the handle belongs to.
            handle: The handle that stands at the end of the output that was cut.
            offset: The byte to start at.
            limit: The most bytes to read.
        """
        return read_output(store, context.thread_id, handle, offset, limit)

    return Tool.of(read, name=READ_OUTPUT, kind="read", idempotent=True, run_in="inline", max_output_bytes=None)
