import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD_PYTHON = """#!{python}
import sys
assert sys.argv[1] == "-c", "nothing else is asked of a Python that is too old"
sys.version_info = (3, 10, 14, "final", 0)
exec(sys.argv[2])
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("target", "place"), [("demo", "VENV"), ("bench", "BENCH_VENV")])
def test_make_refuses_a_python_that_is_too_old_before_it_makes_anything(target, place, tmp_path):
    python = tmp_path / "python"
    python.write_text(OLD_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    venv = tmp_path / "venv"
    words = ["make", f"PYTHON={python}", f"{place}={venv}", target]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode != 0
    assert f"callgate needs Python 3.11 or newer: run make PYTHON=python3.12 {target}" in done.stderr
    assert not venv.exists()
