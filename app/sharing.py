"""The buttons that share runs: as one HTML file, and as figures for print.

Each file is made when its button is pressed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock

import streamlit as st

from app.lab import lab
from labcore.exports.folder import pack

MOST_RUNS = 8  # in one HTML file
MAKER = "app.share.document:of_runs"  # draws with the components of all pages, which a page alone need not load
_ONE = Lock()  # each takes a core for seconds, and a server has other visitors


def show(run_ids: Sequence[str], name: str, ready: bool) -> None:
    """Both buttons, for files called `name`; disabled unless the runs are `ready`, which have made a step."""
    with st.container(horizontal=True):
        as_html(run_ids, name, ready, "export")
        st.download_button("Figures (zip)", partial(figures, tuple(run_ids), name), f"{name}-figures.zip",
                           "application/zip", icon=":material/print:", on_click="ignore", disabled=not ready,
                           key=f"figures:{name}",
                           help="All charts for print as SVG and PNG, in one-column and two-column width")


def as_html(run_ids: Sequence[str], name: str, ready: bool, place: str) -> None:
    """The button of the HTML file alone; `place` distinguishes several of them on one page."""
    st.download_button("Share as HTML", partial(html, tuple(run_ids)), f"{name}.html", "text/html",
                       icon=":material/share:", on_click="ignore", key=f"html:{place}:{name}",
                       disabled=not ready or len(run_ids) > MOST_RUNS,
                       help="One file that shows up to 8 runs without a server: charts, completions, tokens")


def html(run_ids: Sequence[str]) -> bytes:
    """The runs as one HTML file."""
    with _ONE:
        made: str = resolve_name(MAKER)(lab().store, run_ids)
        return made.encode()


def figures(run_ids: Sequence[str], name: str) -> bytes:
    """The charts of the runs for print, as a zip."""
    from labcore.exports import figures  # brings matplotlib in

    with _ONE, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / f"{name}-figures"
        figures.write(lab().store, run_ids, folder)
        pack(folder, packed := folder.with_suffix(".zip"))
        return packed.read_bytes()
