"""What `read_docstring` makes of docstrings of every style, tidy or not."""

import subprocess
import sys

import pytest

from callgate.tools.docstrings import Documentation, docstring_findings, read_docstring

PARAMETERS = {"city": "the city", "units": "C or F"}

GOOGLE = """Get weather.

Args:
    city (str): the city
    units (str, optional): C or F

Returns:
    The weather.

Raises:
    ValueError: when there is none.
"""
NUMPY = """Get weather.

Parameters
----------
city : str
    the city
units : {'C', 'F'}, optional
    C or F

Returns
-------
str
    The weather.
"""
SPHINX = """Get weather.

:param str city: the city
:param units: C or F
:type units: str
:returns: the weather
:raises ValueError: when there is none
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_a27_each_style_is_recognised_by_itself(docstring):
    read = read_docstring(docstring)
    assert read.description == "Get weather."
    assert dict(read.parameters) == PARAMETERS


@pytest.mark.parametrize(
    "docstring",
    [
        "Get weather.\nArgs:\n    city: the city\n    units: C or F\n",
        "Get weather.\n\nArgs:\n\n    city: the city\n\n    units: C or F\n",
        "Get weather.\n\nArguments:\n  city: the city\n\nKeyword Args:\n  units: C or F\n",
        "Get weather.\n\nPARAMS:\n    city: the city\n    units: C or F\n",
        "Get weather.\n\nArgs :\n    - city: the city\n    - units: C or F\n",
        "Get weather.\n\nArgs:\n    city:\n        the city\n    units: C\n        or F\n",
        "Get weather.\nParameters\n----------\n\ncity: str\n    the city\nunits\n    C or F\n",
        "Get weather.\n\n    Parameters\n    ----------\n    city : str\n        the city\n    units : str\n        C or F\n",
        "Get weather.\n:param city: the city\n:param units: C\n    or F\n",
        "Get weather.\nArgs:\n    city: the city\n\n:param units: C or F\n",
    ],
)
def test_a26_small_deviations_lose_no_parameter_and_leak_no_block(docstring):
    read = read_docstring(docstring)
    assert read.description == "Get weather."
    assert dict(read.parameters) == PARAMETERS


def test_a26_a_docstring_may_begin_with_its_parameters():
    def weather():
        """Args:
            city: the city
            units: C
              or F
        """  # fmt: skip

    assert dict(read_docstring(weather.__doc__).parameters) == PARAMETERS
    assert read_docstring(weather.__doc__).description is None
    assert dict(read_docstring("Args:\n    city: the city").parameters) == {"city": "the city"}


def test_starred_names_lose_their_stars():
    read = read_docstring("Do.\n\nArgs:\n    *rest: the rest\n    \\*\\*labels: by name\n    **more: too\n")
    assert dict(read.parameters) == {"rest": "the rest", "labels": "by name", "more": "too"}


def test_a_line_that_begins_no_entry_goes_on_with_the_one_before():
    read = read_docstring("Do.\n\nArgs:\n    city: the city,\n    where it rains: often\n    or so\n")
    assert read.parameters["city"].startswith("the city,")


@pytest.mark.parametrize(
    "docstring",
    [
        "Do: it.\n\nNote: this stays.\n\nExample:\n    >>> do()\n    Args: none",
        "Title\n-----\n\nText.",
        "Use it like this\n\n    key: value\n\nor not.",
        "It returns: nothing of note.",
        "Steps:\n    first: do this\n    second: do that\n\nThat is all.",
    ],
)
def test_text_that_is_no_section_stays_as_it_is(docstring):
    assert read_docstring(docstring) == Documentation(docstring)


def test_other_sections_stay_in_the_description_in_their_order():
    read = read_docstring("Do.\n\nArgs:\n    x: an x\n\nNotes:\n    Keep this.\n\nReturns:\n    y\n\nLast words.\n")
    assert read.description == "Do.\n\nNotes:\n    Keep this.\n\nLast words."


def test_numpy_sections_end_at_the_next_header():
    read = read_docstring("Do.\n\nParameters\n----------\nx : int\n    an x\n\nNotes\n-----\nKeep this.\n")
    assert read.description == "Do.\n\nNotes\n-----\nKeep this."
    assert dict(read.parameters) == {"x": "an x"}


def test_names_that_share_a_text_all_get_it():
    assert dict(read_docstring("Do.\n\nParameters\n----------\nx, y : int\n    both\n").parameters) == {"x": "both", "y": "both"}


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_no_text_is_no_description(docstring):
    assert read_docstring(docstring) == Documentation(None)


def test_findings_name_what_is_described_in_vain_and_what_is_not_described():
    found = docstring_findings(["city", "citty"], {"city": True, "units": False})
    assert [(finding.parameter, finding.problem.split()[0]) for finding in found] == [("citty", "the"), ("units", "it")]


def test_other_names_are_no_findings_where_any_keyword_is_taken():
    assert docstring_findings(["colour"], {}, open_ended=True) == ()


def test_a_docstring_without_sections_does_not_load_griffe():
    code = (
        "import sys\nfrom callgate.tools.docstrings import read_docstring\n"
        "read_docstring('Get weather.')\nassert 'griffe' not in sys.modules\n"
        "read_docstring('Get.\\n\\nArgs:\\n    x: y')\nassert 'griffe' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # this interpreter, the test's own text
