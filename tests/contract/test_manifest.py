"""Every row of the contract has a test that names it, and no test names a row that is not there."""

import pytest

from tests.contract.manifest import TABLE, TESTS, names_in, proofs, row_of, rows

ROWS = rows(TABLE.read_text(encoding="utf-8"))
PROOFS = proofs()
HOMES = {
    "T": "test_tools.py",
    "R": "test_registry.py",
    "P": "test_pipeline.py",
    "D": "test_diagnostics.py",
    "P13": "test_steps.py",
}


def test_the_table_has_the_rows_that_this_part_of_the_project_promises():
    wanted = [f"T{n}" for n in range(1, 6)] + [f"R{n}" for n in range(1, 9)] + [f"P{n}" for n in range(1, 13)] + ["P4+"]
    assert set(wanted) | {"D1", "D2", "D3"} <= set(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_named_by_a_test(row):
    assert [proof.test for proof in PROOFS if proof.row == row]


def test_no_test_names_a_row_that_is_not_there():
    assert [proof for proof in PROOFS if proof.row not in ROWS] == []


@pytest.mark.parametrize("file", HOMES.values())
def test_every_test_of_a_part_names_a_row(file):
    nameless = [name for name in names_in((TESTS / file).read_text(encoding="utf-8")) if row_of(name) is None]
    assert nameless == []


def test_every_test_is_in_the_file_of_its_part():
    assert [proof for proof in PROOFS if HOMES.get(proof.row, HOMES.get(proof.row[0], proof.file)) != proof.file] == []


def test_no_two_tests_of_a_file_have_one_name():
    for file in TESTS.glob("test_*.py"):
        names = list(names_in(file.read_text(encoding="utf-8")))
        assert len(names) == len(set(names)), file.name


# The manifest itself: it must be able to find what is missing.


def test_rows_are_read_from_the_table():
    assert rows("| id | promise |\n|---|---|\n| P4 | a |\n| P4+ | b, c |\ntext P9\n") == {"P4": "a", "P4+": "b, c"}


def test_a_row_that_is_there_twice_is_noticed():
    with pytest.raises(ValueError, match="P4"):
        rows("| P4 | a |\n| P4 | b |\n")


@pytest.mark.parametrize(
    ("test", "row"),
    [
        ("test_p7_x", "P7"),
        ("test_p12_x", "P12"),
        ("test_p4plus_x", "P4+"),
        ("test_x", None),
        ("test_p7", None),
        ("test_p7x_y", None),
    ],
)
def test_a_row_is_read_from_the_name_of_a_test(test, row):
    assert row_of(test) == row


def test_only_test_functions_count(tmp_path):
    (tmp_path / "test_a.py").write_text("# test_p1_comment\nasync def test_p2_real(): ...\ndef helper_p3_x(): 'test_p4_text'\n")
    assert [proof.row for proof in proofs(tmp_path)] == ["P2"]
