import pytest

from callgate import ToolDefinitionError, tool


def test_a_text_by_position_is_refused_with_both_of_its_meanings():
    with pytest.raises(ToolDefinitionError) as caught:
        tool("read")  # type: ignore[call-overload]
    assert "@tool(name='read')" in str(caught.value)
    assert "@tool(kind='read')" in str(caught.value)
