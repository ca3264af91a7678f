"""Globs fit whole names, cheaply whatever the name."""

import fnmatch
import re
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.policy.globs import Names, is_glob, matches, prefix_of

LETTERS = st.text("ab?*_[.", max_size=8)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("bash", "bash", True),
        ("bash", "bash_session", False),
        ("bash", "my_bash", False),
        ("bash", "Bash", False),
        ("bash*", "bash_session", True),
        ("*", "", True),
        ("refund_?", "refund_a", True),
        ("refund_?", "refund_", False),
        ("refund_?", "refund_ab", False),
        ("a.b", "aXb", False),
        ("[ab]", "a", False),
        ("*_order", "refund_order\n", False),
        ("a*\nb", "a\n\nb", True),
        ("caf\u00e9", "cafe\u0301", False),
    ],
)
def test_a_glob_fits_a_whole_name_or_nothing(pattern, name, fits):
    assert matches(pattern, name) is fits
    assert Names.of([pattern]).have(name) is fits


@given(LETTERS, st.text("ab_[.", max_size=10))
def test_globs_mean_what_the_standard_librarys_mean_without_classes(pattern, name):
    plain = pattern.replace("[", "[[]")
    assert matches(pattern, name) is bool(re.fullmatch(fnmatch.translate(plain), name))


@given(LETTERS, st.text("ab_[.", max_size=10))
def test_what_fits_begins_with_the_prefix(pattern, name):
    assert not matches(pattern, name) or name.startswith(prefix_of(pattern))
    assert is_glob(pattern) or prefix_of(pattern) == pattern


def test_a_name_made_to_be_slow_is_not():
    begun = perf_counter()
    assert not matches("*a" * 30 + "*b", "a" * 20_000)
    assert perf_counter() - begun < 5
