"""What the server does beside the pages: sessions of closed tabs are dropped, and a text on a WebSocket is refused."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from streamlit import runtime
from streamlit.runtime.memory_session_storage import MemorySessionStorage
from streamlit.runtime.websocket_session_manager import WebsocketSessionManager

from app import serving


class Session:
    """A session that refers to itself, as those of scripts do."""

    def __init__(self, name: str):
        self.id, self.itself = name, self


@pytest.fixture
def storage(monkeypatch) -> MemorySessionStorage:
    """The server's memory of sessions, in which one expires at once."""
    storage = MemorySessionStorage(ttl_seconds=0)
    manager = WebsocketSessionManager(storage, None, None, None)
    monkeypatch.setattr(runtime, "exists", lambda: True)
    monkeypatch.setattr(runtime, "get_instance", lambda: SimpleNamespace(_session_mgr=manager))
    return storage


def test_a_tab_that_is_closed_for_good_is_freed_without_another_one(storage, monkeypatch):
    monkeypatch.setattr(serving, "FORGET_SECONDS", 0.01)
    session = Session("a")
    held = weakref.ref(session)
    storage.save(SimpleNamespace(session=session))
    del session
    gc.collect()
    assert held() is not None and storage.list() == [], "Streamlit itself keeps it"

    async def some_time() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(serving.forget_closed_tabs(), 0.1)

    asyncio.run(some_time())
    assert held() is None


def test_a_tab_that_may_come_back_stays(storage):
    storage._cache._ttl = 100
    storage.save(SimpleNamespace(session=Session("a")))
    assert serving.expired() == 0 and len(storage.list()) == 1


def test_without_a_server_there_is_nothing_to_free():
    assert serving.expired() == 0


def test_a_text_on_a_websocket_ends_it():
    got: list[bytes] = []

    async def endpoint(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                got.append(await socket.receive_bytes())

    served = Starlette(routes=[WebSocketRoute("/", endpoint)], middleware=[Middleware(serving.BinaryOnly)])
    with TestClient(served).websocket_connect("/") as socket:
        socket.send_bytes(b"a")
        socket.send_text("b")
        with pytest.raises(WebSocketDisconnect) as ended:
            socket.receive_bytes()
    assert ended.value.code == serving.NO_TEXT and got == [b"a"]
