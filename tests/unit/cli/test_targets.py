import re

import pytest

from callgate.cli.targets import TargetError, load_registry

ONE = """
from callgate import tool

@tool
def one() -> int:
    'Give one.'
    return 1
"""


def names(target):
    return [tool.name for tool in load_registry(target).list()]


def test_a_file_gives_its_decorated_tools_in_their_order(tools_file):
    assert names(tools_file) == ["add", "fail", "refuse"]


def test_an_attribute_may_be_one_decorated_function(tools_file):
    assert names(f"{tools_file}:add") == ["add"]


def test_a_module_of_the_working_directory_is_found(tools_file):
    assert names("sums:add") == ["add"]
    assert names("sums") == ["add", "fail", "refuse"]


def test_the_one_registry_of_a_file_goes_before_its_loose_tools(folder):
    (folder / "catalog.py").write_text(
        ONE + "\nfrom callgate import ToolRegistry\n@tool\ndef two(): 'Two.'\nregistry = ToolRegistry([one])\n"
    )
    assert names("catalog.py") == ["one"]


def test_a_registry_with_two_names_is_still_the_one_registry(folder):
    (folder / "catalog.py").write_text(ONE + "\nfrom callgate import ToolRegistry\na = b = ToolRegistry([one])\n")
    assert names("catalog.py") == ["one"]


def test_two_registries_must_be_told_apart_by_name(folder):
    (folder / "catalog.py").write_text(ONE + "\nfrom callgate import ToolRegistry\na, b = ToolRegistry([one]), ToolRegistry()\n")
    with pytest.raises(TargetError, match=r"catalog\.py:a, catalog\.py:b"):
        load_registry("catalog.py")
    assert names("catalog.py:a") == ["one"]


def test_an_attribute_may_be_a_list_of_tools(folder):
    (folder / "catalog.py").write_text(ONE + "\nboth = [one]\n")
    assert names("catalog.py:both") == ["one"]


def test_a_file_in_a_package_is_imported_under_its_full_name(folder):
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "other.py").write_text(ONE)
    (folder / "pack" / "tools.py").write_text("from .other import one\n")
    assert names("pack/tools.py") == ["one"]


def test_a_file_that_does_not_exist_is_named(folder):
    with pytest.raises(TargetError, match=r"no file 'nothing\.py'"):
        load_registry("nothing.py")


def test_a_module_that_does_not_exist_is_named(folder):
    with pytest.raises(TargetError, match="no module 'nothing_here'"):
        load_registry("nothing_here:registry")


def test_a_missing_import_inside_the_file_is_not_taken_for_a_missing_target(folder):
    (folder / "broken.py").write_text("import nothing_here\n")
    with pytest.raises(TargetError, match=r"importing 'broken' raised ModuleNotFoundError: .*broken\.py:1\)"):
        load_registry("broken.py")


def test_an_attribute_that_does_not_exist_is_named_with_those_that_do(folder):
    (folder / "catalog.py").write_text(ONE)
    with pytest.raises(TargetError, match=r"no attribute 'registry'; it has tool, one"):
        load_registry("catalog.py:registry")


def test_a_value_that_is_no_tool_is_refused_by_its_type(folder):
    (folder / "catalog.py").write_text("number = 1\ndef plain(): ...\n")
    with pytest.raises(TargetError, match="holds a int"):
        load_registry("catalog.py:number")
    with pytest.raises(TargetError, match="holds a function"):
        load_registry("catalog.py:plain")
    with pytest.raises(TargetError, match="neither a ToolRegistry nor a function with @tool"):
        load_registry("catalog.py")


def test_a_file_named_like_a_module_that_is_loaded_is_refused(folder):
    (folder / "json.py").write_text(ONE)
    with pytest.raises(TargetError, match="is taken by"):
        load_registry("json.py")


def test_an_exception_of_the_file_is_told_with_its_place(folder):
    (folder / "broken.py").write_text("x = 1\nx / 0\n")
    with pytest.raises(TargetError, match=r"raised ZeroDivisionError: division by zero \(.*broken\.py:2\)"):
        load_registry("broken.py")


@pytest.mark.parametrize("stop", ["import sys\nsys.exit()", "raise BaseException('stop')", "raise GeneratorExit"])
def test_a_file_that_ends_the_program_is_a_target_without_tools(stop, folder):
    (folder / "script.py").write_text(f"{ONE}\n{stop}\n")
    with pytest.raises(TargetError, match=r"importing 'script' raised \w+: .*script\.py:\d+\)"):
        load_registry("script.py")


def test_an_interrupt_of_an_import_ends_the_program(folder):
    (folder / "script.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_registry("script.py")


def test_an_exception_that_cannot_be_written_is_told_by_its_type(folder):
    (folder / "odd.py").write_text("class Odd(Exception):\n    def __str__(self): raise self\nraise Odd\n")
    with pytest.raises(TargetError, match=r"raised Odd \(.*odd\.py:3\)"):
        load_registry("odd.py")


HOSTILE = """
class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("not bound")

class Liar:
    @property
    def __class__(self):
        raise SystemExit

proxy, liar = Proxy(), Liar()
"""


def test_values_that_raise_when_looked_at_are_no_tools(folder):
    (folder / "catalog.py").write_text(HOSTILE + ONE)
    assert names("catalog.py") == ["one"]
    for name, kind in {"proxy": "Proxy", "liar": "Liar"}.items():
        with pytest.raises(TargetError, match=f"holds a {kind}"):
            load_registry(f"catalog.py:{name}")
    with pytest.raises(TargetError, match=r"looking for tools in 'catalog\.py:proxy\.x' raised RuntimeError: not bound"):
        load_registry("catalog.py:proxy.x")


def test_a_module_whose_attributes_raise_is_refused(folder):
    (folder / "lazy.py").write_text("def __getattr__(name):\n    raise SystemExit(name)\n")
    with pytest.raises(TargetError, match=r"'lazy\.py:\w+' raised|importing 'lazy' raised"):
        load_registry("lazy.py:registry")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (".", "is a folder"),
        ("..", "is a folder"),
        ("../x/pyproject.toml", "is no module name"),
        ("README.md", "is no .py file"),
        (":add", "is no module name"),
        ("sub/tools", "did you mean 'sub/tools.py'?"),
        ("sub/tools:add", "did you mean 'sub/tools.py:add'?"),
        ("", "is no module name"),
    ],
)
def test_what_cannot_be_a_module_is_refused_with_what_a_target_is(folder, target, says):
    (folder / "README.md").write_text("x")
    (folder / "sub").mkdir()
    (folder / "sub" / "tools.py").write_text("")
    with pytest.raises(TargetError, match=re.escape(says)) as caught:
        load_registry(target)
    assert "file.py:attribute" in str(caught.value)


def test_a_program_of_the_modules_name_does_not_hide_the_module(folder):
    (folder / "catalog.py").write_text(ONE)
    (folder / "catalog").write_text("#!/bin/sh")
    assert names("catalog") == ["one"]
