"""The folder with the code of the pages. The engine starts that code and never imports it."""

from __future__ import annotations

from pathlib import Path

import labcore

CODE = Path(labcore.__file__).resolve().parents[1]


def page_code() -> Path:
    """The folder `app`: in the repository beside `labcore`, in the installed package in a folder of its own."""
    return next(path for path in (CODE / "rl_visual_lab" / "app", CODE / "app") if (path / "main.py").exists())
