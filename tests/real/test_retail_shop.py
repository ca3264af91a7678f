"""The 114 support tasks of the τ²-bench retail shop, replayed through the registry: 550 calls, of which tools refuse 18."""

import json
from functools import cache
from typing import Any

import pytest

from callgate import InvalidInputError, ToolError, ToolRegistry, ToolResult
from tests.real.retail_tools import Shop
from tests.recorded import recorded

TASKS = 114
CALLS = 550
REFUSALS = 18


@cache
def read(name: str) -> Any:
    return json.loads((recorded("tau2_retail") / name).read_bytes())


def task(number: int) -> dict[str, Any]:
    return read("expected.json")[number]


def opened() -> tuple[Shop, ToolRegistry]:
    shop = Shop(read("db.json"))
    return shop, ToolRegistry(shop.tools())


def as_json(value: object) -> object:
    return json.loads(json.dumps(value, allow_nan=False))


def check_answer(action: dict[str, Any], result: ToolResult[Any]) -> None:
    assert as_json(result.value) == action["ok"]
    assert json.loads(result.text) == action["ok"]
    assert result.invocation.status == "succeeded"
    assert result.invocation.repairs == ()


def check_refusal(action: dict[str, Any], error: ToolError) -> None:
    assert type(error) is ToolError
    assert error.user_message == action["error"]
    assert error.invocation_id is not None


def test_the_recorded_tasks_are_complete():
    tasks = read("expected.json")
    actions = [action for task in tasks for action in task["actions"]]
    assert (len(tasks), len(actions), sum("error" in action for action in actions)) == (TASKS, CALLS, REFUSALS)


def test_the_shop_has_the_sixteen_tools_and_each_parameter_is_described():
    _, registry = opened()
    assert len(registry) == 16
    assert {action["name"] for task in read("expected.json") for action in task["actions"]} <= set(registry.ids())
    for shop_tool in registry.list():
        assert shop_tool.description
        assert all("description" in schema for schema in shop_tool.input_schema["properties"].values()), shop_tool.name


@pytest.mark.parametrize("number", range(TASKS))
async def test_a_task_gives_the_recorded_values_refusals_and_changes(number):
    shop, registry = opened()
    for action in task(number)["actions"]:
        arguments = json.dumps(action["arguments"])
        if "error" in action:
            with pytest.raises(ToolError) as caught:
                await registry.ainvoke(action["name"], arguments)
            check_refusal(action, caught.value)
        else:
            check_answer(action, await registry.ainvoke(action["name"], arguments))
    assert as_json(shop.changed()) == task(number)["changed"]
    assert len(registry.events) == len(task(number)["actions"])


@pytest.mark.parametrize("number", range(TASKS))
def test_a_task_goes_the_same_way_in_blocking_calls_with_arguments_as_objects(number):
    shop, registry = opened()
    for action in task(number)["actions"]:
        if "error" in action:
            with pytest.raises(ToolError) as caught:
                registry.invoke(action["name"], action["arguments"])
            check_refusal(action, caught.value)
        else:
            check_answer(action, registry.invoke(action["name"], action["arguments"]))
    assert as_json(shop.changed()) == task(number)["changed"]


async def test_every_call_has_an_answer_for_the_model_that_says_whether_it_failed():
    failed = 0
    for number in range(TASKS):
        _, registry = opened()
        for action in task(number)["actions"]:
            reply = await registry.answer(action["name"], action["arguments"])
            assert reply.is_error == ("error" in action)
            assert reply.invocation.status == ("failed" if reply.is_error else "succeeded")
            if reply.is_error:
                failed += 1
                assert reply.text.startswith(action["error"])
            else:
                assert json.loads(reply.text) == action["ok"]
    assert failed == REFUSALS


async def test_nothing_that_a_task_does_is_seen_by_another_one():
    before = json.dumps(read("db.json"))
    for number in range(TASKS):
        _, registry = opened()
        for action in task(number)["actions"]:
            await registry.answer(action["name"], action["arguments"])
    assert json.dumps(read("db.json")) == before


async def test_a_recorded_call_without_one_of_its_arguments_changes_nothing():
    checked = set()
    for number in range(TASKS):
        for action in task(number)["actions"]:
            for name in action["arguments"]:
                if (action["name"], name) in checked:
                    continue
                checked.add((action["name"], name))
                shop, registry = opened()
                rest = {key: value for key, value in action["arguments"].items() if key != name}
                with pytest.raises(InvalidInputError) as caught:
                    await registry.ainvoke(action["name"], rest)
                assert [problem.path for problem in caught.value.problems] == [name]
                assert shop.changed() == {"orders": {}, "users": {}, "products": {}}
    assert len({tool for tool, _ in checked}) == 15  # list_all_product_types is never called, and takes nothing


async def test_a_refused_change_leaves_the_records_as_they_were():
    for number in range(TASKS):
        for action in task(number)["actions"]:
            if "error" in action:
                shop, registry = opened()
                assert (await registry.answer(action["name"], action["arguments"])).is_error
                assert shop.changed() == {"orders": {}, "users": {}, "products": {}}


async def test_all_product_types_are_listed():
    _, registry = opened()
    listed = (await registry.ainvoke("list_all_product_types", "")).value
    assert listed == {product["name"]: product_id for product_id, product in read("db.json")["products"].items()}
