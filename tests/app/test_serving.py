"""What the server does beside the pages: sessions of closed tabs are dropped, and a text on a WebSocket is refused."""

import asyncio
import gc
import weakref
from contextlib import suppress
from types import ModuleType, SimpleNamespace

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
from app.page_list import PAGES
from labcore.errors import LabError


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


def test_the_first_visitors_stay_and_one_too_many_is_told(storage, monkeypatch):
    monkeypatch.setenv(serving.VISITORS, "2")
    tabs = [SimpleNamespace(session=SimpleNamespace(id=name)) for name in "abc"]
    monkeypatch.setattr(runtime.get_instance()._session_mgr, "list_active_sessions", lambda: tabs)
    said: list[str] = []
    monkeypatch.setattr(serving.st, "info", lambda text, **_: said.append(text))

    def shown(tab: str) -> bool:
        monkeypatch.setattr(serving, "get_script_run_ctx", lambda: SimpleNamespace(session_id=tab))
        return serving.has_room()

    assert [shown(tab) for tab in "abc"] == [True, True, False]
    assert len(said) == 1 and "2 visitors" in said[0]
    tabs.pop(0)  # one has left
    assert shown("c")
    monkeypatch.delenv(serving.VISITORS)
    assert shown("d")


@pytest.mark.parametrize("name, value, says", [
    (serving.VISITORS, "few", "whole number from 1"), (serving.VISITORS, "0", "whole number from 1"),
    (serving.FRAMED_BY, "https://a.org; script-src *", "addresses of sites"), (serving.FRAMED_BY, "a.org", "a.org")])
def test_a_wrong_setting_is_said_on_the_page(monkeypatch, name, value, says):
    monkeypatch.setenv(name, value)
    with pytest.raises(LabError, match=says):
        serving.has_room()
    assert "frame-ancestors 'self'" in serving.SecurityHeaders(Starlette()).headers["Content-Security-Policy"]


def test_only_named_sites_may_show_the_lab_in_a_frame(monkeypatch):
    assert serving.headers()["X-Frame-Options"] == "SAMEORIGIN"
    monkeypatch.setenv(serving.FRAMED_BY, "https://huggingface.co https://*.example.org:8443")
    found = serving.headers()
    policy = found["Content-Security-Policy"]
    assert "X-Frame-Options" not in found
    assert "frame-ancestors 'self' https://huggingface.co https://*.example.org:8443" in policy


def test_the_modules_of_all_pages_are_imported_with_the_server(monkeypatch):
    asked = set()
    monkeypatch.setattr(serving, "import_module", lambda name: asked.add(name) or ModuleType(name))
    serving.prepare()
    assert {"app.training.frame", "app.llm.rail", "app.cost"} <= asked and len(asked) > len(PAGES)
