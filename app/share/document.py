"""Make the HTML file: the components of the run page as they are, plotly.js once, and the data, packed.

Everything is in the file, and its Content-Security-Policy forbids the browser to load anything else. Scripts are
allowed by their hashes, so text in the data cannot become one; the data itself is compressed and in base64, so that no
text in it can end the element which holds it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import labcore
from app import theme
from app.components.component import Component
from app.components.live_chart import CHART
from app.components.maze_board import BOARD
from app.components.microscope import SCOPE
from app.components.projector import PROJECTOR
from app.components.run_head import HEAD
from app.components.scrubber import SCRUBBER
from app.components.shared_run import SHARED
from app.components.story_strip import STRIP
from app.components.world_player import PLAYER
from app.share import content
from labcore.errors import LabError, os_reason
from labcore.runs.files import atomic
from labcore.runs.store.store import Store

PARTS = (HEAD, CHART, SCRUBBER, STRIP, SCOPE, BOARD, PLAYER, PROJECTOR, SHARED)
UPRIGHT = "SourceSansVF-Upright"
LIGHT = {"background-color": "#FFFFFF", "text-color": "#1B1F24", "border-color": "#D9DEE4", "primary-color": "#0072B2"}
DARK = {"background-color": "#14171B", "text-color": "#E7EAEE", "border-color": "#343B44", "primary-color": "#4FA8E0"}
FONT = "'Source Sans',Arial,Helvetica,sans-serif"


def of_runs(store: Store, run_ids: Sequence[str]) -> str:
    """The file that shows some runs. Raises LabError as `content.content`."""
    return document(content.content(store, run_ids))


def document(data: dict[str, Any]) -> str:
    """The file that shows `data`, which `app.share.content` makes."""
    titles = [run["title"] for run in data["runs"]]
    title = escape(" · ".join(titles))
    about = escape(data["description"], quote=True)
    of_plotly, plotly = _plotly()
    script = "\n".join(["globalThis.labParts = {};", *map(_part, PARTS), _START])
    policy = ("default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; font-src data:; "
              "style-src 'unsafe-inline'; "
              f"script-src '{_hash(script)}' '{of_plotly}'")
    packed = json.dumps({**data, "version": labcore.__version__}, ensure_ascii=False, separators=(",", ":"))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · RL Visual Lab</title>
<meta name="description" content="{about}">
<meta name="generator" content="RL Visual Lab {labcore.__version__}">
<meta property="og:type" content="article">
<meta property="og:site_name" content="RL Visual Lab">
<meta property="og:title" content="{title}">
<meta property="og:description" content="{about}">
<meta name="twitter:card" content="summary">
<link rel="icon" href="data:,">
<style>{_style()}</style>
</head>
<body>
<div id="shared"><div class="rl-shared-run"><header><h1>{title}</h1><p>{about}</p></header>
<noscript><p>Charts and steps need JavaScript, which is off in this browser.</p></noscript></div></div>
<footer>Made with RL Visual Lab {labcore.__version__}</footer>
<script type="application/octet-stream" id="data">{_packed(packed)}</script>
<script type="application/octet-stream" id="plotly">{plotly}</script>
<script type="module">{script}</script>
</body>
</html>
"""


_START = """
const unpacked = async (id) => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};
window.labPlotly = unpacked("plotly").then((text) => {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
  return window.Plotly;
});
const shared = document.getElementById("shared");
labParts.shared_run.update({ data: JSON.parse(await unpacked("data")), parentElement: shared });
"""


def _part(part: Component) -> str:
    script = "\n".join(path.read_text(encoding="utf-8") for path in part.files)
    names = re.findall(r"^export (?:async function|function|const) (update|dispose)\b", script, re.MULTILINE)
    inside = re.sub(r"^export ", "", script, flags=re.MULTILINE)
    return f"labParts.{part.name} = (() => {{\n{inside}\nreturn {{ {', '.join(names)} }};\n}})();"


def _style() -> str:
    """The page's style, then that of its components."""
    def colours(of: dict[str, str]) -> str:
        return "".join(f"--st-{name}:{value};" for name, value in of.items())

    face = ("@font-face{font-family:'Source Sans';font-weight:200 900;font-display:swap;"
            f"src:url(data:font/woff2;base64,{_font()}) format('woff2')}}")
    return (f"{face}:root{{color-scheme:light dark;--st-font:{FONT};{colours(LIGHT)}}}"
            f"@media (prefers-color-scheme:dark){{:root{{{colours(DARK)}}}}}"
            + re.sub(r"</?style>", "", theme.CSS) + "".join(part.style for part in PARTS))


@cache
def _font() -> str:
    """The font of the lab's pages, which comes with Streamlit."""
    media = files("streamlit").joinpath("static/static/media")
    return b64encode(next(path.read_bytes() for path in media.iterdir() if path.name.startswith(UPRIGHT))).decode()


@cache  # to pack it is a second of work
def _plotly() -> tuple[str, str]:
    """The hash of plotly.js, and itself packed."""
    script = files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8")
    return _hash(script), _packed(script)


def _packed(text: str) -> str:
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _hash(script: str) -> str:
    """A script's hash as a policy names it."""
    return f"sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def write(page: str, path: Path) -> None:
    """Write the file. Raises LabError where it cannot be written."""
    try:
        atomic.write_output(path, lambda part: part.write_text(page, encoding="utf-8"))
    except OSError as error:
        raise LabError(f"The file {path} cannot be written ({os_reason(error)}): choose another place.") from error
