"""Where the recorded data of the real tests lies: beside the checkout, because none of it is part of the project."""

import os
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def recorded(folder: str) -> Path:
    """Give the folder of that name; without the data a test is skipped, but where CI says that it runs, it fails."""
    path = DATA / folder
    if not path.is_dir():
        reason = f"the recorded data {folder!r} is not beside this checkout, in ../shared/data"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path
