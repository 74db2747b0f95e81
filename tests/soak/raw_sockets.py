"""Raw WebSocket messages to a lab that is shared for reading: the server stays up, answers others, and writes nothing.

Garbage, text, frames that lie about their length, every message of Streamlit's protocol with made-up values, and
presses of buttons that the page has disabled.
"""

from __future__ import annotations

import os
import random
import re
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.browser.conftest import Server
from tests.soak.links import PAGES
from tests.soak.made_up import word
from tests.soak.report import Report

MOST = 6  # messages of a connection
SECONDS = 5.0  # to wait for a page
QUIET = 0.4  # seconds without a message after which a page is through
WIDGET = re.compile(rb"\$\$ID-[0-9a-f]+-[\w:.@-]+")
NUMBERS = (0, 1, -1, 2**31 - 1, 2**62)


class RawMessages:
    """Trials on a server that shares the lab at `home` for reading. To be used in a with statement."""

    def __init__(self, report: Report, home: Path):
        self._report, self._home = report, home

    def __enter__(self) -> RawMessages:
        self._server = Server(self._home, RL_LAB_READ_ONLY="1")
        self._before = files(self._home)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def trial(self, chance: random.Random) -> None:
        """One connection. Raises AssertionError where the server ends, no longer answers, or has written anything."""
        kind = chance.choice(list(KINDS))
        protocols = ["streamlit", *(chance.choice(("", "a", "x" * 500)) for _ in range(chance.choice((0, 0, 2))))]
        address = self._server.url.replace("http", "ws") + "/_stcore/stream"
        with suppress(WebSocketException, OSError), connect(
                address, subprotocols=[each for each in protocols if each], max_size=None, close_timeout=1) as socket:
            for _ in range(chance.randrange(1, MOST)):
                KINDS[kind](socket, chance)
        self._report.count("Raw messages to a lab shared for reading", kind)
        assert self._server.process.poll() is None, f"the server ended: {self._server.log.read_text()[-1000:]}"
        with urllib.request.urlopen(f"{self._server.url}/_stcore/health", timeout=30) as answer:
            assert answer.status == 200
        now = files(self._home)
        changed = sorted(name for name in {*now, *self._before} if now.get(name) != self._before.get(name))
        assert not changed, f"a lab shared for reading has written {changed}"


def files(home: Path) -> dict[str, bytes]:
    """All that lies in the lab, but for SQLite's memory of its log and the server's own log."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*")
            if path.is_file() and path.suffix not in (".db-shm", ".log")}


def _garbage(socket: ClientConnection, chance: random.Random) -> None:
    socket.send(chance.randbytes(chance.choice((0, 1, 7, 1000, 100_000))))


def _text(socket: ClientConnection, chance: random.Random) -> None:
    socket.send(word(chance, 10_000).encode(errors="replace").decode())


def _oversized(socket: ClientConnection, chance: random.Random) -> None:
    """A frame that says it is huge, or one that is."""
    if chance.random() < 0.5:
        length = chance.choice((2**30, 2**40, 2**63 - 1)).to_bytes(8, "big")
        socket.socket.sendall(b"\x82\xff" + length + os.urandom(4) + bytes(1000))
        socket.recv(timeout=SECONDS)
    else:
        socket.send(bytes(chance.choice((2**24, 2**26))))


def _protocol(socket: ClientConnection, chance: random.Random) -> None:
    """A message of the protocol with made-up values."""
    message = BackMsg()
    fill(message, chance, depth=0)
    socket.send(message.SerializeToString())


def _rerun(socket: ClientConnection, chance: random.Random) -> None:
    """Open a page as its browser does, then set and press all that there is on it, disabled or not."""
    page = chance.choice(list(PAGES))
    query = f"run={word(chance, 50)}" if chance.random() < 0.5 else ""
    message = BackMsg()
    message.rerun_script.query_string = query.encode(errors="replace").decode()
    message.rerun_script.page_name = page
    socket.send(message.SerializeToString())
    widgets = sorted({found for each in answers(socket) for found in WIDGET.findall(each)})
    for widget in widgets if chance.random() < 0.5 else chance.sample(widgets, min(3, len(widgets))):
        state = message.rerun_script.widget_states.widgets.add()
        if chance.random() < 0.6:
            state.trigger_value = True
        else:
            fill(state, chance, depth=1)
        state.id = widget.decode()
    socket.send(message.SerializeToString())
    answers(socket)


KINDS: Mapping[str, Callable[[ClientConnection, random.Random], None]] = {
    "garbage": _garbage, "text": _text, "oversized": _oversized, "protocol": _protocol, "rerun": _rerun}


def answers(socket: ClientConnection) -> list[bytes]:
    """What the server sends until it is quiet."""
    found: list[bytes] = []
    with suppress(TimeoutError):
        while len(found) < 5000:
            found.append(bytes(socket.recv(timeout=QUIET if found else SECONDS)))
    return found


def fill(message: Message, chance: random.Random, depth: int) -> None:
    """Set some of the fields of a message, and of one within it, to made-up values."""
    fields = list(message.DESCRIPTOR.fields)
    for field in chance.sample(fields, min(len(fields), chance.randrange(1, 4))):
        if field.is_repeated:
            part = getattr(message, field.name)
            with suppress(ValueError, TypeError):
                if field.message_type is None:
                    part.append(_value(field, chance))
                else:
                    fill(part.add(), chance, depth + 1)
        elif field.message_type is None:
            with suppress(ValueError, TypeError):
                setattr(message, field.name, _value(field, chance))
        elif depth < 4:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), chance, depth + 1)


def _value(field: FieldDescriptor, chance: random.Random) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = word(chance, 10_000).encode(errors="replace")
        return text if field.type == FieldDescriptor.TYPE_BYTES else text.decode()
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return chance.choice((0.0, -1e308, float("nan"), float("inf")))
    return chance.choice(NUMBERS)
