"""The cap of what the model reads: cases d8 and d9."""

import json
import re

import pytest

from callgate.errors import OutputTooLargeError
from callgate.tools.limiting import MAX_BLOCK_BYTES, SPILLED, TRUNCATED, cut_text, limit_output
from callgate.tools.spill import MemorySpill
from callgate.tools.writing import Written, write_output, write_text
from callgate.values import BinaryBlock, ImageBlock, TextBlock


def size_of(written):
    return sum(len(text.encode()) for text in [written.text, *(b.text for b in written.blocks if isinstance(b, TextBlock))])


def spilled(text, limit_bytes, store):
    return limit_output("t", write_text("t", text), limit_bytes, "spill", lambda whole: store.put(whole, "thread"))


def test_d8_a_million_characters_are_cut_to_the_cap_with_head_tail_and_size():
    written = limit_output("t", write_text("t", "A" + "x" * 999_998 + "Z"), 1000, "truncate")
    assert len(written.text) <= 1000
    assert len(written.text) > 990
    assert "1000000 bytes" in written.text
    assert (written.text[0], written.text[-1]) == ("A", "Z")
    assert written.text.count("x") > 900
    assert (written.notes, written.size_bytes) == ((TRUNCATED,), 1_000_000)


@pytest.mark.parametrize("size", [9_999, 10_000])
def test_d9_an_output_of_up_to_the_cap_is_left_as_it_is(size):
    written = write_output("t", "x" * (size - 2))
    assert written.size_bytes == size
    for on_oversize in ("error", "truncate", "spill"):
        assert limit_output("t", written, 10_000, on_oversize) is written


def test_d9_one_byte_more_is_cut_with_a_sign():
    written = limit_output("t", write_output("t", "x" * 9_999), 10_000, "truncate")
    assert len(written.text) <= 10_000
    assert "cut: the middle of 10001 bytes is left out" in written.text
    assert written.notes == (TRUNCATED,)
    assert written.size_bytes == 10_001


def test_d9_one_byte_more_is_refused_with_both_sizes():
    with pytest.raises(OutputTooLargeError) as caught:
        limit_output("t", write_output("t", "x" * 9_999), 10_000, "error")
    assert (caught.value.size_bytes, caught.value.limit_bytes, caught.value.tool) == (10_001, 10_000, "t")


def test_d8_the_cap_counts_bytes_and_never_splits_a_character():
    for limit_bytes in range(900, 905):
        written = limit_output("t", write_output("t", "é€😀" * 1000), limit_bytes, "truncate")
        assert limit_bytes - 8 < len(written.text.encode()) <= limit_bytes
        assert "\ufffd" not in written.text


@pytest.mark.parametrize("limit_bytes", range(1, 200))
def test_d8_every_cap_is_honoured_and_gives_a_text(limit_bytes):
    for text in ("x" * 10_000, "😀" * 10_000):
        cut = cut_text(text, limit_bytes)
        assert 1 <= len(cut.encode()) <= limit_bytes


def test_d8_a_cap_of_ten_bytes_gives_the_head_and_an_ellipsis():
    assert cut_text("abcdefghijklmnop", 10) == "abcdefg…"
    assert cut_text("abcdefghij", 10) == "abcdefghij"
    assert cut_text("abcdef", 2) == ".."


def test_d8_a_cap_of_fifty_bytes_still_states_the_size():
    assert cut_text("a" * 500 + "z", 50) == "a" * 22 + "[...501 bytes...]" + "a" * 10 + "z"


@pytest.mark.parametrize("on_oversize", ["error", "truncate", "spill"])
def test_d8_a_cap_of_nothing_is_an_error_in_every_mode(on_oversize):
    with pytest.raises(OutputTooLargeError):
        limit_output("t", write_output("t", "x"), 0, on_oversize)


def test_d8_without_a_cap_nothing_is_cut():
    written = write_output("t", "x" * 100_000)
    assert limit_output("t", written, None, "error") is written


def test_d8_earlier_notes_stay():
    assert limit_output("t", write_output("t", "\ud800" * 999), 100, "truncate").notes == ("surrogates replaced", TRUNCATED)


def test_d8_a_spilled_text_shows_its_head_and_how_to_read_on_within_the_cap():
    store = MemorySpill()
    text = "".join(f"line {n}\n" for n in range(10_000))
    written = spilled(text, 1000, store)
    assert 980 < len(written.text.encode()) <= 1000
    assert (written.notes, written.size_bytes) == ((SPILLED,), len(text))
    head, arguments = re.fullmatch(r"(.*)\n\[cut here: .*read_output\((\{.*\})\)\]", written.text, re.DOTALL).groups()
    reading = json.loads(arguments)
    assert f"{len(head)} of {len(text)} bytes shown" in written.text
    page = store.read(reading["handle"], reading["offset"], len(text), "thread")
    assert head + page.text == text


def test_d8_the_offset_after_a_head_of_long_characters_is_in_bytes():
    store = MemorySpill()
    written = spilled("😀" * 5000, 601, store)
    head = written.text.partition("\n[cut here")[0]
    reading = json.loads(re.search(r"\{.*\}", written.text).group())
    assert reading["offset"] == 4 * len(head)
    assert store.read(reading["handle"], reading["offset"], 8, "thread").text == "😀😀"


def test_d8_a_spill_that_cannot_be_kept_is_cut_instead():
    assert spilled("x" * 5000, 1000, MemorySpill(max_bytes=100)).notes == (TRUNCATED,)
    assert limit_output("t", write_output("t", "x" * 5000), 1000, "spill").notes == (TRUNCATED,)


def test_d8_a_cap_too_small_for_a_handle_cuts_and_keeps_nothing():
    store = MemorySpill()
    written = spilled("x" * 5000, 100, store)
    assert (written.notes, store.size_bytes) == ((TRUNCATED,), 0)
    assert len(written.text) <= 100


def test_d8_a_store_with_long_handles_cannot_push_the_text_over_the_cap():
    written = limit_output("t", write_output("t", "x" * 5000), 300, "spill", lambda _: "h" * 400)
    assert written.notes == (TRUNCATED,)
    assert len(written.text) <= 300


@pytest.mark.parametrize("on_oversize", ["truncate", "spill"])
def test_d8_text_blocks_share_the_cap_and_short_texts_stay_whole(on_oversize):
    store = MemorySpill()
    image = ImageBlock(b"i" * 5000, "image/png")
    written = write_text("t", "short", [TextBlock("a" * 5000), image, TextBlock("b" * 9000)])
    limited = limit_output("t", written, 2000, on_oversize, lambda whole: store.put(whole, None))
    assert limited.text == "short"
    assert limited.blocks[1] is image
    assert 1950 < size_of(limited) <= 2000
    assert limited.notes == ((TRUNCATED,) if on_oversize == "truncate" else (SPILLED,))


def test_d8_text_blocks_over_the_cap_are_refused_like_text():
    written = write_text("t", "short", [TextBlock("a" * 5000)])
    with pytest.raises(OutputTooLargeError) as caught:
        limit_output("t", written, 5004, "error")
    assert caught.value.size_bytes == 5005
    assert limit_output("t", written, 5005, "error") is written


def test_d8_text_blocks_are_dropped_where_their_share_would_be_no_readable_piece():
    written = Written("kept", 4, (TextBlock("x" * 50), ImageBlock(b"i", "image/png")) * 50)
    limited = limit_output("t", written, 100, "truncate")
    assert limited.text == "kept"
    assert all(isinstance(block, ImageBlock) for block in limited.blocks)
    assert limited.notes == (TRUNCATED,)


def test_d10_images_are_not_counted_as_text_but_have_a_bound_of_their_own():
    half = BinaryBlock(bytes(MAX_BLOCK_BYTES // 2))
    fits = write_output("t", [half, half])
    assert limit_output("t", fits, 1000, "error") is fits
    for limit_bytes in (1000, None):
        with pytest.raises(OutputTooLargeError) as caught:
            limit_output("t", write_output("t", [half, half, BinaryBlock(b"x")]), limit_bytes, "truncate")
        assert (caught.value.size_bytes, caught.value.limit_bytes) == (MAX_BLOCK_BYTES + 1, MAX_BLOCK_BYTES)
