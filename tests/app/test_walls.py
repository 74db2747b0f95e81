"""Pages say what stands where; what is shown is made in app/."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pages_are_layout_only():
    for path in (ROOT / "pages").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "def " not in text and len(text.splitlines()) < 60, path.name
