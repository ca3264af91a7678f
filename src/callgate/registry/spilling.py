"""The built-in tool that pages through outputs which were kept because they are too large for a model."""

from typing import Annotated, Any

from pydantic import Field

from callgate.tools.context import ToolContext
from callgate.tools.spill import MAX_PAGE_BYTES, PAGE_BYTES, READ_OUTPUT, SpillPage, SpillStore, read_output
from callgate.tools.tool import Tool
from callgate.values import ToolAnswer

__all__ = ("reader_tool",)


def reader_tool(store: SpillStore) -> Tool[Any, Any]:
    """Make the tool `read_output` for what is kept in `store`; it reads only what its own thread has kept."""

    def read(
        context: ToolContext,
        handle: Annotated[str, Field(description="The handle that stands at the end of the output that was cut.")],
        offset: Annotated[int, Field(ge=0, description="The byte to start at.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_PAGE_BYTES, description="The most bytes to read.")] = PAGE_BYTES,
    ) -> ToolAnswer[SpillPage]:
        return read_output(store, context.thread_id, handle, offset, limit)

    description = "Read on in the output of an earlier call that was too large to show at once."
    return Tool.of(
        read, name=READ_OUTPUT, description=description, kind="read", idempotent=True, run_in="inline", max_output_bytes=None
    )
