from typing import Annotated

from pydantic import BaseModel, Field

from callgate import Tool, tool
from callgate.cli.findings import findings
from callgate.tools.tool import as_tool


class Described(BaseModel):
    """Say what this is."""

    x: int


@tool
def describes_by_type(place: Described, count: Annotated[int, Field(description="How many.")]) -> int:
    """Do something."""
    return count


@tool
def describes_nothing(count: int) -> int:
    return count


def subjects(function):
    return [finding.subject for finding in findings([as_tool(function)]) if finding.level == "warning"]


def test_a_description_of_the_parameters_type_is_enough():
    assert subjects(describes_by_type) == []


def test_a_tool_and_a_parameter_without_description_are_two_findings():
    assert subjects(describes_nothing) == ["description", "count"]


def test_a_schema_that_has_no_properties_is_no_finding():
    @tool
    def nothing() -> int:
        """Give one."""
        return 1

    assert subjects(nothing) == []


def test_a_parameter_that_only_the_docstring_knows_is_a_finding():
    @tool
    def renamed(count: int) -> int:
        """Do something.

        Args:
            count: How many.
            amount: What the parameter was called before.
        """
        return count

    assert subjects(renamed) == ["amount"]


def test_parameters_of_a_raw_schema_are_looked_at_too():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"description": "B."}, "c": {"$ref": "#/$defs/c"}, "d": True},
        "$defs": {"c": {"description": "C."}},
    }
    assert subjects(Tool("raw", lambda arguments: arguments, description="Raw.", input_schema=schema)) == ["a", "d"]
