import pytest

from callgate import ToolDefinitionError, tool


def test_a_text_by_position_is_refused_with_both_of_its_meanings():
    with pytest.raises(ToolDefinitionError) as caught:
        tool("read")  # type: ignore[call-overload]
    assert "@tool(name='read')" in str(caught.value)
    assert "@tool(kind='read')" in str(caught.value)


@pytest.mark.parametrize("labels", [["two words"], [""], [" untrusted"], ["un\ttrusted"]])
def test_a_label_that_is_no_word_is_refused(labels):
    with pytest.raises(ToolDefinitionError, match="emits must hold words"):
        tool(emits=labels)(plain)


def test_errors_that_pass_need_retries():
    with pytest.raises(ToolDefinitionError, match="transient needs retries"):
        tool(transient=(OSError,), idempotent=True)(plain)
    assert tool(transient=(OSError,), idempotent=True, retries=1)(plain) is plain


def plain() -> str:
    return "done"
