import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect

import pytest

from examples.shop.database import create, database_path
from examples.shop.recorded import Expected, RecordedCall, load, mismatches
from examples.shop.tools import SECRET, registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shop(tmp_path):
    token = database_path.set(create(tmp_path / "shop.sqlite"))
    yield
    database_path.reset(token)


def recorded(arguments, **expected):
    return RecordedCall("c1", "get_order", arguments, Expected(**expected))


def test_the_demo_runs_without_a_terminal_and_every_call_is_answered_as_recorded():
    done = subprocess.run(
        [sys.executable, "-m", "examples.shop"], cwd=ROOT, capture_output=True, text=True, timeout=55, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    for title in ("Receipts", "What the model read for each failure", "Totals"):
        assert title in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_the_shop_is_the_same_each_time_it_is_made(tmp_path):
    dumps = []
    for name in ("a", "b"):
        with closing(connect(create(tmp_path / name))) as database:
            dumps.append(list(database.iterdump()))
    assert dumps[0] == dumps[1]
    assert len(dumps[0]) > 1000


def test_the_recorded_calls_reach_every_tool_of_the_shop():
    assert set(registry.ids()) <= {call.tool for call in load()}


@pytest.mark.usefixtures("shop")
async def test_an_answer_that_is_not_the_recorded_one_is_told():
    right = '{"order_id": "O-0001"}'
    reply = await registry.answer("get_order", right)
    assert list(mismatches(recorded(right, says=("SKU-029",)), reply)) == []
    for expected in ({"code": "invalid_input", "status": 400}, {"says": ("SKU-999",)}, {"repaired": True}, {"note": "spilled"}):
        assert len(list(mismatches(recorded(right, **expected), reply))) == 1
    leaking = replace(reply, text=f"{reply.text} {SECRET}")
    assert list(mismatches(recorded(right), leaking)) == ["a secret got out"]
