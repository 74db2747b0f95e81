"""What the first page of a server need not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.app.conftest import ROOT

OPEN = """
import sys
import app.lab
from tests.app.conftest import FakeLauncher
from streamlit.testing.v1 import AppTest
app.lab.Launcher = FakeLauncher
test = AppTest.from_file(sys.argv[1], default_timeout=60)
if sys.argv[2]:
    test.switch_page(f"../pages/{sys.argv[2]}.py")
test.run()
assert not test.exception, test.exception
print(sorted({"pandas", "pyarrow", "scipy", "torch"} & {*sys.modules}))
"""


@pytest.mark.parametrize("name", ["", "llm"])
def test_it_loads_no_large_library(name):
    done = subprocess.run([sys.executable, "-c", OPEN, str(ROOT / "app" / "navigation.py"), name], cwd=ROOT,
                          capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr[-2000:]
