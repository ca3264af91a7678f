"""Write one neutral schema in the form of each provider, and read the model's arguments back from that form.

The tools keep one schema, JSON Schema draft 2020-12. `render` gives tools as OpenAI (plain or strict), Anthropic, Gemini or MCP
wants them; `restore_arguments` undoes, in what the model sends, whatever the form made necessary.
"""

from callgate.tools.dialects.names import Dialect, NameMap, name_map, wire_name
from callgate.tools.dialects.rendering import DIALECTS, Note, Rendered, Skipped, ToolShape, render, restore_arguments

__all__ = (
    "DIALECTS",
    "Dialect",
    "NameMap",
    "Note",
    "Rendered",
    "Skipped",
    "ToolShape",
    "name_map",
    "render",
    "restore_arguments",
    "wire_name",
)
