"""Tell which tools take secrets, so that what a model wrote for them is shown to nobody before it is read and masked."""

from collections.abc import Mapping
from typing import cast

__all__ = ("takes_secrets",)


def takes_secrets(schema: object) -> bool:
    """Tell whether a JSON Schema has a secret anywhere: what is `writeOnly`, or of the format `password`."""
    if isinstance(schema, Mapping):
        facts = cast("Mapping[str, object]", schema)
        return facts.get("writeOnly") is True or facts.get("format") == "password" or any(map(takes_secrets, facts.values()))
    return isinstance(schema, list) and any(map(takes_secrets, cast("list[object]", schema)))
