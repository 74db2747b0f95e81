"""The live chart component: plotly.js from the plotly wheel, grown from deltas.

The component's inline script only imports the real one from `app/static`, because Streamlit sends inline code
again with every refresh. Both files in `app/static` are copies made at start-up and ignored by git.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import mkstemp

import streamlit as st

HERE = Path(__file__).parent
STATIC = HERE.parent / "static"
PLOTLY_URL = "app/static/plotly.min.js"


@cache
def _script() -> tuple[str, str]:
    """Name and text of the script; the name holds its hash so that a browser never keeps an old one."""
    text = (HERE / "live_chart.js").read_text(encoding="utf-8")
    return f"live_chart-{hashlib.sha256(text.encode()).hexdigest()[:10]}.js", text


@cache
def publish() -> None:
    """Put plotly.js and the component's script where the server serves static files. Once per process."""
    STATIC.mkdir(exist_ok=True)
    wheel = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
    served = STATIC / "plotly.min.js"
    if not served.exists() or served.stat().st_size != wheel.stat().st_size:
        _replace(served, lambda path: shutil.copyfile(wheel, path))
    name, text = _script()
    if not (STATIC / name).exists():
        for old in STATIC.glob("live_chart-*.js"):
            old.unlink(missing_ok=True)
        _replace(STATIC / name, lambda path: path.write_text(text, encoding="utf-8"))


def _replace(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, then rename: another server never reads half a file."""
    handle, name = mkstemp(dir=target.parent)
    os.close(handle)
    write(Path(name))
    os.chmod(name, 0o644)
    os.replace(name, target)


@cache
def _component() -> Callable:
    loader = f"""
export default async function (component) {{
  const module = await import(new URL("app/static/{_script()[0]}", document.baseURI));
  await module.update(component);
  return () => module.dispose(component.parentElement);
}}"""
    return st.components.v2.component("rl_live_chart", html='<div class="rl-live"></div>', js=loader,
                                      css=(HERE / "live_chart.css").read_text(encoding="utf-8"), isolate_styles=False)


def warm() -> None:
    """Have the browser load plotly.js before the first run is started, so that its first point comes sooner."""
    _component()(key="warm_chart", data={"plotly": PLOTLY_URL}, on_resync_change=lambda: None)


def live_chart(data: dict, key: str, on_resync: Callable[[], None]) -> None:
    """Mount the grid. `data` is what `app.feed.payload` makes; `on_resync` is called when rows were missed."""
    _component()(key=key, data={**data, "plotly": PLOTLY_URL}, on_resync_change=on_resync)
