import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def names_in(requirements):
    return {
        re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
        for requirement in requirements
        if isinstance(requirement, str)
    }


def test_at_most_five_packages_are_required():
    assert len(PROJECT["project"]["dependencies"]) <= 5


def test_the_extra_all_has_every_other_extra():
    extras = PROJECT["project"]["optional-dependencies"]
    assert re.findall(r"\[(.*)\]", extras["all"][0]) == [",".join(sorted(extras.keys() - {"all"}))]


def test_every_constraint_is_one_version_without_an_address():
    assert [pin for pin in PINS if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []


def test_every_package_that_the_project_names_is_pinned():
    project = PROJECT["project"]
    extras = [name for key, names in project["optional-dependencies"].items() if key != "all" for name in names]
    groups = [name for names in PROJECT["dependency-groups"].values() for name in names]
    assert names_in([*project["dependencies"], *extras, *groups]) - names_in(PINS) == set()


def test_every_ignored_rule_has_its_reason_beside_it():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.pydocstyle]")]
    rules = [line for line in section.splitlines() if re.match(r'    "[A-Z]+\d*",', line)]
    assert len(rules) > 10
    assert [line for line in rules if not re.search(r"# \S+.{10}", line)] == []
