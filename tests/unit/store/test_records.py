"""The names of places in the journal."""

import pytest

from callgate.store.records import call_key, end_claim, start_claim


@pytest.mark.parametrize("call_id", ["a" * 1001, "\U0001f600" * 100, "/" * 100_000])
def test_an_id_that_fits_in_no_index_is_named_by_its_digest(call_id):
    key = call_key("run", call_id)
    assert len(key) < 100
    assert key == call_key("run", call_id)
    assert key != call_key("run", call_id + "a")
    assert key != call_key("run", key.removeprefix("run/")), "the digest itself is another id"


def test_no_id_makes_a_place_of_another_call():
    ids = ["a", "a#0000", "a#0000!", "a/b", "%61", "@", "", "\ud800", "\x00", "a" * 1000]
    places = [
        place(call_key(run, call), number)
        for place in (start_claim, end_claim)
        for run in ids
        for call in ids
        for number in (0, 1)
    ]
    assert len(set(places)) == len(places)
