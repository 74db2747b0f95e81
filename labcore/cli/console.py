"""`rl-lab`, the command of the installed package. Without arguments it opens the lab; with a command it runs that
command, as `python -m labcore` does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import labcore

CODE = Path(labcore.__file__).resolve().parents[1]
# The page's code: in the repository beside `labcore`, in the installed package in a folder of its own.
PAGES = (CODE / "rl_visual_lab" / "app" / "main.py", CODE / "app" / "main.py")
STREAMLIT = re.compile(r"--[a-z]+\.[A-Za-z.]+(=.*)?")  # its options: --server.port 8600


def main() -> int:
    """Open the lab, or run a command. Returns the exit status of the command."""
    words = sys.argv[1:]
    if not words or STREAMLIT.fullmatch(words[0]):
        open_lab(words)
    from labcore.cli import main as command_line  # here, since the page needs none of what it loads

    return command_line.main(words)


def open_lab(options: Sequence[str]) -> NoReturn:
    """Become the process of `streamlit run` with these options. Ctrl-C ends it."""
    page = next(path for path in PAGES if path.exists())
    # -P: a folder `labcore` or `streamlit` in the working directory is not taken for the package.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "streamlit", "run", str(page), *options])
