"""Run the server beside the pages: open and close the lab, and set the security headers of its answers."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import streamlit as st
import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime

from app import lab

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
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{kind} {sources}" for kind, sources in POLICY.items()),
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class SecurityHeaders:
    """ASGI middleware: every answer carries `HEADERS`. A script from elsewhere does not run in the lab's pages."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
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
    """Drop the sessions that no tab can come back to. Returns how many there were."""
    if not runtime.exists():
        return 0
    manager: Any = runtime.get_instance()._session_mgr  # Streamlit has no public way to do it
    with manager._storage_lock:
        gone = manager._session_storage._cache.expire()
    return len(gone)


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """The lab opens while the browser still starts, and closes with the server."""
    _close_in_time()
    opened = lab.warm_up()
    forgetting = asyncio.create_task(forget_closed_tabs())
    yield
    forgetting.cancel()
    if opened:  # it stays in the cache: a script that still goes would open another one
        opened.launcher.close()


def _close_in_time() -> None:
    """An open tab must not keep the server from ending; uvicorn has a limit, but Streamlit no option for it."""
    server = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(server, uvicorn.Server):
        server.config.timeout_graceful_shutdown = CLOSE_SECONDS
