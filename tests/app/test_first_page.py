"""What the first page of a server need not wait for."""

import subprocess
import sys

from tests.app.conftest import ROOT

OPEN = """
import sys
import app.lab
from tests.app.conftest import FakeLauncher
from streamlit.testing.v1 import AppTest
app.lab.Launcher = FakeLauncher
for page in "", "../pages/llm.py":
    test = AppTest.from_file(sys.argv[1], default_timeout=60)
    if page:
        test.switch_page(page)
    test.run()
    assert not test.exception, test.exception
    print(page, sorted({"pandas", "pyarrow", "scipy", "torch"} & {*sys.modules}))
"""


def test_it_loads_no_large_library():
    done = subprocess.run([sys.executable, "-c", OPEN, str(ROOT / "app" / "navigation.py")], cwd=ROOT,
                          capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-2:] == [" []", "../pages/llm.py []"], done.stderr[-2000:]
