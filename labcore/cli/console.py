"""`rl-lab`, the command of the installed package. Without arguments it opens the lab; with a command it runs that
command, as `python -m labcore` does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from labcore.cli.page_code import page_code

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
    # -P: a folder `labcore` or `streamlit` in the working directory is not taken for the package.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "streamlit", "run", str(page_code() / "main.py"), *options])
