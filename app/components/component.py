"""Components of our own: a folder with scripts and NAME.css, published where the server serves static files.

The inline script only imports the real one from `app/static`, because Streamlit sends inline code again with every
refresh. The real one is `component.js`, which all components share, followed by the folder's own. What lies in
`app/static` is copied there on the first use in a process, and ignored by git.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import streamlit as st

from labcore.errors import LabError
from labcore.runs.files import atomic

HERE = Path(__file__).parent
STATIC = HERE.parent / "static"  # where Streamlit serves from: beside main.py
KEPT_SECONDS = 86_400
LONG_AGO = 1_000_000_000  # seconds since 1970


class Component:
    """The component in `folder`; its scripts export `update(component)` and `dispose(parentElement)`.

    Call it to mount it. It is registered and published once per process, at the first call. `shared` are scripts that
    several components use.
    """

    def __init__(self, folder: Path, *shared: Path) -> None:
        self.folder, self.name, self.shared = folder, folder.name, shared

    def __call__(self, *, data: Any, **mount: Any) -> Any:
        return self._registered(data=[data], **mount)  # of a list Streamlit imports no pandas to look for data frames

    @property
    def files(self) -> list[Path]:
        """The files of the published script, in this order."""
        return [HERE / "component.js", *self.shared, *sorted(self.folder.glob("*.js"))]

    @property
    def style(self) -> str:
        """Its CSS."""
        return (self.folder / f"{self.name}.css").read_text(encoding="utf-8")

    @cached_property
    def script(self) -> str:
        """The published script's name."""
        return published(self.name, b"\n".join(path.read_bytes() for path in self.files))

    @cached_property
    def _registered(self) -> Callable[..., Any]:
        loader = f"""
export default async function (component) {{
  const module = await import(new URL("app/static/{self.script}", document.baseURI));
  await module.update({{ ...component, data: component.data[0] }});
  return () => module.dispose(component.parentElement);
}}"""
        return st.components.v2.component(
            f"rl_{self.name}", html=f'<div class="rl-{self.name.replace("_", "-")}"></div>', js=loader,
            css=self.style, isolate_styles=False)


def published(name: str, script: bytes) -> str:
    """Put a script where the server serves it; return its name there, which holds its hash.

    Streamlit does not say how long such a file may be kept, so a browser keeps it for a tenth of its age, and compiles
    it anew when it asks again: hence it is old from the start.

    Raises:
        LabError: the folder cannot be written to.
    """
    served = STATIC / f"{name}-{hashlib.sha256(script).hexdigest()[:10]}.js"
    if not served.exists():
        def fill(path: Path) -> None:
            path.write_bytes(script)
            os.utime(path, (LONG_AGO, LONG_AGO))

        try:
            for old in STATIC.glob(f"{name}-*.js"):
                if time.time() - old.stat().st_ctime > KEPT_SECONDS:  # another server may still serve it
                    old.unlink(missing_ok=True)
            atomic.write_file(served, fill)
        except PermissionError as error:  # an installation for all users of a machine
            raise LabError(f"The lab cannot write its scripts to {STATIC}: start it as a user who may write there, or "
                           "install it into a virtual environment of your own.") from error
    return served.name
