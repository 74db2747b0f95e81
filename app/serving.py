"""Run the server beside the pages: open and close the lab, and set the security headers of its answers."""

from __future__ import annotations

import ast
import asyncio
import ctypes
import gc
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import streamlit as st
import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import delta_generator, runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import lab
from app.page_list import PAGES
from labcore.errors import LabError, quoted
from labcore.runs.spec.run_spec import every_knob
from labcore.watch.converting.receiving import token

FORGET_SECONDS = 30  # between two looks for tabs that are closed for good
CLOSE_SECONDS = 2  # how long Ctrl-C waits for open tabs
NO_TEXT = 1003  # WebSocket's code for a kind of data that is not accepted

# Streamlit's page has an inline script, a WebAssembly module and styles written as it goes; components come as blobs.
POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "media-src": "'self' data: blob:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'self'",
}
FRAMED_BY, VISITORS = "RL_LAB_FRAMED_BY", "RL_LAB_VISITORS"
_ORIGIN = re.compile(r"https?://[\w*.-]+(:\d+)?")


def headers() -> dict[str, str]:
    """The security headers of every answer. Other sites that `RL_LAB_FRAMED_BY` names, with spaces between them, may
    show the lab in a frame, as hosts of apps do. Raises LabError if one of them is not the address of a site."""
    others = os.environ.get(FRAMED_BY, "").split()
    if wrong := [each for each in others if not _ORIGIN.fullmatch(each)]:
        raise LabError(f"{FRAMED_BY} names {quoted(wrong[0])}: write addresses of sites, such as https://example.org, "
                       "with spaces between them.")
    return _headers(others)


def _headers(others: Sequence[str]) -> dict[str, str]:
    policy = POLICY | {"frame-ancestors": " ".join([POLICY["frame-ancestors"], *others])}
    return {"Content-Security-Policy": "; ".join(f"{kind} {sources}" for kind, sources in policy.items()),
            **({} if others else {"X-Frame-Options": "SAMEORIGIN"}),  # it can name no other site
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}


class SecurityHeaders:
    """ASGI middleware: every answer carries `headers`. A script from elsewhere does not run in the lab's pages."""

    def __init__(self, app: ASGIApp):
        self.app = app
        try:
            self.headers = headers()
        except LabError:  # the page says what is wrong
            self.headers = _headers(())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, with_headers)


class BinaryOnly:
    """ASGI middleware: a text on a WebSocket ends the connection. Streamlit's protocol has none, and each would put a
    traceback into the server's log."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def binary() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and message.get("bytes") is None:
                await send({"type": "websocket.close", "code": NO_TEXT})
                return {"type": "websocket.disconnect", "code": NO_TEXT}
            return message

        await self.app(scope, binary if scope["type"] == "websocket" else receive, send)


MIDDLEWARE = [
    Middleware(SecurityHeaders),
    Middleware(BinaryOnly),
    # Streamlit checks the host of its WebSocket only. Another name for this machine would read the lab's files.
    Middleware(TrustedHostMiddleware, allowed_hosts=st.get_option("server.allowedHosts") or ["*"], www_redirect=False),
]


def has_room() -> bool:
    """True if this tab may be shown: at most `RL_LAB_VISITORS` tabs are open at a time. Any other tab shows a message
    instead. Raises LabError if a setting of the server is wrong."""
    headers()
    token()
    text = os.environ.get(VISITORS, "").strip()
    if not text:
        return True
    if not text.isdecimal() or int(text) < 1:
        raise LabError(f"{VISITORS} is {quoted(text)}: set it to a whole number from 1.")
    manager: Any = runtime.get_instance()._session_mgr  # Streamlit has no public way to count its tabs
    # Of the tabs that are open, the first ones are shown: who reads on is not sent away by the next visitor.
    first = [info.session.id for info in manager.list_active_sessions()][:int(text)]
    context = get_script_run_ctx()
    if context is None or context.session_id in first:
        return True
    st.info(f"This lab is shown to {int(text)} visitors at a time, and all places are taken. Reload the page in a few "
            "minutes.", icon=":material/hourglass_top:")
    return False


async def forget_closed_tabs() -> None:
    """Free what closed tabs have held, once they are closed for good. Streamlit drops an expired session only when
    another tab closes, so those of the last tabs would stay; and the lab's server collects no cycles after a script."""
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        if expired():
            gc.collect()
            if sys.platform == "linux":
                with suppress(AttributeError):  # only glibc has it, and keeps what is freed for itself
                    ctypes.CDLL(None).malloc_trim(0)


def expired() -> int:
    """Drop the sessions that no browser tab can return to. Returns their number."""
    if not runtime.exists():
        return 0
    manager: Any = runtime.get_instance()._session_mgr  # Streamlit has no public way to do it
    with manager._storage_lock:
        gone = manager._session_storage._cache.expire()
    return len(gone)


def prepare() -> None:
    """Do the work that the first visitor would wait for: import the modules of the pages, build the table of all knobs,
    and run Streamlit's check of how it was started, which reads the source of every module."""
    for page in PAGES:
        for node in ast.parse((Path(__file__).parent / page.script).read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                module = import_module(node.module)
                for name in (each.name for each in node.names):
                    if not hasattr(module, name):
                        import_module(f"{node.module}.{name}")
    every_knob()
    delta_generator._maybe_print_use_warning()  # Streamlit does it at the first element, and has no public way


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """The lab opens while the browser still starts, and closes with the server."""
    _close_in_time()
    opened = lab.warm_up()
    forgetting = asyncio.create_task(forget_closed_tabs())
    Thread(target=prepare, name="prepare", daemon=True).start()
    yield
    forgetting.cancel()
    if opened:  # it stays in the cache: a script that still goes would open another one
        opened.launcher.close()


def _close_in_time() -> None:
    """An open tab must not keep the server from ending; uvicorn has a limit, but Streamlit no option for it."""
    server = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(server, uvicorn.Server):
        server.config.timeout_graceful_shutdown = CLOSE_SECONDS
