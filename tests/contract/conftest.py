"""The doors: what is said of a call must hold for `invoke` and for `ainvoke`."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.kit import by_ainvoke, by_invoke


@pytest.fixture(params=[by_invoke, by_ainvoke], ids=["invoke", "ainvoke"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param
