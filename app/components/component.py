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
from tempfile import mkstemp
from typing import Any

import streamlit as st

HERE = Path(__file__).parent
STATIC = HERE.parent / "static"  # where Streamlit serves from: beside main.py
KEPT_SECONDS = 86_400
LONG_AGO = 1_000_000_000  # seconds since 1970


class Component:
    """The component in `folder`; its scripts export `update(component)` and `dispose(parentElement)`.

    Call it to mount it. It is registered and published once per process, at the first call. `shared` are scripts of
    other components that it uses too.
    """

    def __init__(self, folder: Path, *shared: Path) -> None:
        self.folder, self.name, self.shared = folder, folder.name, shared

    def __call__(self, **mount: Any) -> Any:
        return self._registered(**mount)

    @cached_property
    def script(self) -> str:
        """The published script's name, which holds its hash so that a browser never keeps an old one."""
        text = "\n".join(path.read_text(encoding="utf-8")
                         for path in (HERE / "component.js", *self.shared, *sorted(self.folder.glob("*.js"))))
        name = f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.js"
        if not (STATIC / name).exists():
            for old in STATIC.glob(f"{self.name}-*.js"):
                if time.time() - old.stat().st_ctime > KEPT_SECONDS:  # another server may still serve it
                    old.unlink(missing_ok=True)
            place(STATIC / name, lambda path: path.write_text(text, encoding="utf-8"))
        return name

    @cached_property
    def _registered(self) -> Callable:
        loader = f"""
export default async function (component) {{
  const module = await import(new URL("app/static/{self.script}", document.baseURI));
  await module.update(component);
  return () => module.dispose(component.parentElement);
}}"""
        return st.components.v2.component(
            f"rl_{self.name}", html=f'<div class="rl-{self.name.replace("_", "-")}"></div>', js=loader,
            css=(self.folder / f"{self.name}.css").read_text(encoding="utf-8"), isolate_styles=False)


def place(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, then rename: another server never reads half a file.

    The name must change with the content. Streamlit does not say how long these files may be kept, so a browser keeps
    them for a tenth of their age, and compiles what it gets anew: hence they are old from the start.
    """
    target.parent.mkdir(exist_ok=True)
    handle, name = mkstemp(dir=target.parent)
    os.close(handle)
    write(Path(name))
    os.chmod(name, 0o644)
    os.utime(name, (LONG_AGO, LONG_AGO))
    os.replace(name, target)
