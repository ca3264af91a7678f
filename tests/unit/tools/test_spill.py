"""Outputs kept for paging: case d8 (the full text is kept elsewhere)."""

import itertools
import threading

import pytest

from callgate.errors import InvalidInputError, ToolError
from callgate.tools.spill import MAX_PAGE_BYTES, MemorySpill, SpillPage, page_of, read_output


def counted_store(max_bytes=100):
    numbers = itertools.count(1)
    return MemorySpill(max_bytes, new_handle=lambda: f"h{next(numbers)}")


def test_d8_a_kept_text_is_read_page_by_page():
    store = counted_store()
    handle = store.put("abcdefgh", "t1")
    assert store.read(handle, 0, 5, "t1") == SpillPage("abcde", 0, 5, 8)
    assert store.read(handle, 5, 5, "t1") == SpillPage("fgh", 5, None, 8)


@pytest.mark.parametrize("offset", [8, 9, 10**9])
def test_a_page_at_or_past_the_end_is_empty_and_the_last(offset):
    assert page_of(b"abcdefgh", offset, 5) == SpillPage("", 8, None, 8)


def test_a_page_never_splits_a_character_and_always_goes_on():
    data = "a😀é".encode()
    assert page_of(data, 0, 3) == SpillPage("a", 0, 1, 7)
    assert page_of(data, 1, 2) == SpillPage("😀", 1, 5, 7)
    assert page_of(data, 3, 4) == SpillPage("😀", 1, 5, 7)
    assert page_of(data, 6, 1) == SpillPage("é", 5, None, 7)


def test_a_handle_opens_only_in_the_thread_that_wrote_it():
    store = counted_store()
    ours, nobodys = store.put("ours", "t1"), store.put("nobodys", None)
    assert store.read(ours, 0, 9, "t1").text == "ours"
    assert store.read(ours, 0, 9, "t2") is None
    assert store.read(ours, 0, 9, None) is None
    assert store.read(nobodys, 0, 9, "t1") is None
    assert store.read(nobodys, 0, 9, None).text == "nobodys"


def test_handles_cannot_be_guessed():
    store = MemorySpill()
    handles = {store.put("x", None) for _ in range(100)}
    assert len(handles) == 100
    assert {len(handle) for handle in handles} == {32}


def test_the_oldest_texts_make_room_and_the_store_stays_bounded():
    store = counted_store(max_bytes=100)
    first, second = store.put("a" * 60, None), store.put("b" * 40, None)
    assert store.size_bytes == 100
    third = store.put("c" * 30, None)
    assert store.size_bytes == 70
    assert [store.read(handle, 0, 1, None) is not None for handle in (first, second, third)] == [False, True, True]


def test_a_text_larger_than_the_store_is_not_kept_and_drops_nothing():
    store = counted_store(max_bytes=100)
    kept = store.put("é" * 50, None)
    assert store.put("é" * 51, None) is None
    assert store.read(kept, 0, 2, None).text == "é"


def test_threads_put_and_read_at_once_and_the_bound_holds():
    store = MemorySpill(max_bytes=1000)
    found = []

    def work(name):
        for _ in range(200):
            handle = store.put(name * 100, name)
            page = store.read(handle, 0, 100, name)
            found.append(page is None or page.text == name * 100)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [True] * 800
    assert store.size_bytes == 1000


def test_the_reading_tool_gives_the_program_the_page_and_the_model_the_way_on():
    store = counted_store()
    handle = store.put("abcdefgh", "t1")
    answer = read_output(store, "t1", handle, 2, 3)
    assert answer.value == SpillPage("cde", 2, 5, 8)
    assert answer.text == "cde\n[bytes 2 to 5 of 8; read on with offset 5]"
    assert read_output(store, "t1", handle, 5).text == "fgh\n[bytes 5 to 8 of 8; the end]"
    assert read_output(store, "t1", handle, 50).text == "\n[bytes 8 to 8 of 8; the end]"


def test_the_reading_tool_bounds_a_page():
    store = MemorySpill()
    handle = store.put("x" * (MAX_PAGE_BYTES + 10), None)
    assert read_output(store, None, handle, 0, 10**9).value.next_offset == MAX_PAGE_BYTES


@pytest.mark.parametrize(("thread_id", "handle"), [("t2", "h1"), ("t1", "h2"), (None, "h1"), ("t1", "")])
def test_the_reading_tool_answers_a_handle_of_another_thread_like_an_unknown_one(thread_id, handle):
    store = counted_store()
    store.put("secret", "t1")
    with pytest.raises(ToolError) as caught:
        read_output(store, thread_id, handle)
    assert (caught.value.code, caught.value.status) == ("output_not_found", 404)
    with pytest.raises(ToolError) as unknown:
        read_output(store, "t1", "never given")
    assert caught.value.user_message == unknown.value.user_message


@pytest.mark.parametrize(("offset", "limit", "path"), [(-1, 10, "offset"), (0, 0, "limit"), (0, -5, "limit")])
def test_the_reading_tool_refuses_numbers_that_mean_nothing(offset, limit, path):
    store = counted_store()
    with pytest.raises(InvalidInputError) as caught:
        read_output(store, None, store.put("x", None), offset, limit)
    assert caught.value.problems[0].path == path
