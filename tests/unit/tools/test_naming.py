import random
import time

import pytest

from callgate.tools.naming import loose_index, match_loosely, nearest_names, normalised

WORDS = ["get", "set", "list", "update", "delete", "order", "user", "weather", "invoice", "stock", "search", "report"]


@pytest.mark.parametrize(
    "name",
    ["functions.get_weather", " get_weather ", "get_weather()", "Get-Weather", "functions.Get.Weather()", "GET WEATHER",
     "tools.get_weather", "default_api:get_weather", "get_weather ( )"],
)  # fmt: skip
def test_b15_an_odd_spelling_is_matched_when_one_tool_has_it(name):
    assert match_loosely(name, loose_index(["get_weather", "get_date"])) == "get_weather"


@pytest.mark.parametrize("name", ["Get_Weather", "functions.get-weather", "get weather"])
def test_b15_a_spelling_that_two_tools_have_matches_none(name):
    assert match_loosely(name, loose_index(["get_weather", "get-weather"])) is None


@pytest.mark.parametrize(
    "name", ["get_wether", "getweather", "weather", "get_weather_", "", "functions.", "()", "get_weather(1)"]
)
def test_b15_another_name_matches_none(name):
    assert match_loosely(name, loose_index(["get_weather"])) is None


def test_b15_a_tool_with_the_prefix_in_its_name_is_matched_by_it():
    assert match_loosely("Functions.Add", loose_index(["functions.add"])) == "functions.add"
    assert match_loosely("ADD", loose_index(["functions.add", "add"])) is None


def test_b15_only_offered_tools_count():
    index = loose_index(["get_weather", "get-weather"])
    assert match_loosely("Get Weather", index, {"get-weather"}.__contains__) == "get-weather"
    assert match_loosely("Get Weather", index, lambda _: False) is None


def test_every_name_has_a_loose_spelling_that_is_stable():
    for name in ("get_weather", "Get.Weather", "風林", "ÄÖ-ü", "a/b:c"):
        assert normalised(normalised(name)) == normalised(name)
        assert match_loosely(name, loose_index([name])) == name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("get_date", ("get_weather",)), ("get_wether", ("get_weather",)), ("weather_get", ("get_weather",)),
     ("send", ("send_mail",)), ("sendmail", ("send_mail",)), ("xyz", ()), ("", ())],
)  # fmt: skip
def test_b14_the_names_that_resemble_an_invented_one_are_found(name, nearest):
    assert nearest_names(name, ["get_weather", "send_mail", "ls"])[:1] == nearest


def test_b14_the_most_alike_come_first_and_no_more_than_asked_for():
    known = ["get_order", "get_orders", "set_order", "get_order_items", "cancel"]
    assert nearest_names("get_ordr", known) == ("get_order", "get_orders", "set_order")
    assert nearest_names("get_ordr", known, limit=1) == ("get_order",)


def test_b14_a_hundred_invented_names_among_ten_thousand_take_a_moment():
    chosen = random.Random(1)
    known = [f"{chosen.choice(WORDS)}_{chosen.choice(WORDS)}_{number}" for number in range(10_000)]
    started = time.monotonic()
    for name in known[:100]:
        assert name in nearest_names(name.replace("e", "E", 1), known)
    # Comparing all letter by letter takes more than 30 s here; this way 0.4 s.
    assert time.monotonic() - started < 15


def test_b14_a_very_long_name_costs_no_more():
    assert nearest_names("get_weather" * 1_000_000, ["get_weather"] * 10_000) == ()
    assert match_loosely("x" * 10_000_000, loose_index(["x"])) is None
