"""Say how to install what the agent needs, before an import fails somewhere inside."""

from importlib.util import find_spec

from callgate.errors import UsageError

__all__ = ("require_agent_extra",)


def require_agent_extra() -> None:
    """Check that the model layer is installed.

    Raises:
        UsageError: it is not.
    """
    if find_spec("pydantic_ai") is None:
        raise UsageError("callgate.agent needs pydantic-ai-slim: install callgate with its extra agent")
