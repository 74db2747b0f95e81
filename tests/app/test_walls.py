"""The server process stays light: no module of the app, and no page, brings torch."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_page_imports_torch():
    modules = [f"app.{path.stem}" for path in (ROOT / "app").glob("*.py") if path.stem not in ("__init__", "main")]
    code = (f"import sys, importlib; sys.path.insert(0, {str(ROOT)!r})\n"
            f"for name in {[*modules, 'app.live_chart', 'labcore.worlds.prompts', 'labcore.worlds.preferences']!r}: "
            "importlib.import_module(name)\n"
            "heavy = {'torch', 'transformers'} & set(sys.modules)\nassert not heavy, heavy")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]


def test_pages_are_layout_only():
    for path in (ROOT / "pages").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "def " not in text and len(text.splitlines()) < 60, path.name
