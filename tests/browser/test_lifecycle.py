"""The lab is stopped while a run goes: the worker checkpoints, nothing is orphaned, the next start offers to go on."""

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import streamlit
from playwright.sync_api import Page, expect

from labcore.runs.store.rows import GOING
from labcore.runs.store.store import Store
from tests.browser.conftest import Server, wait_for
from tests.browser.test_llm_lab import SLOW


def family(server: Server) -> list[psutil.Process]:
    """Everything that the server started, as it is now."""
    return psutil.Process(server.process.pid).children(recursive=True)


@pytest.mark.long
def test_stopping_the_lab_loses_nothing(page: Page, tmp_path: Path) -> None:
    """One run through two labs: each is stopped in another way, and the second resumes it from Home."""
    store = Store(f"sqlite:///{tmp_path / 'lab.db'}")
    lab = Server(tmp_path)
    try:
        [supervisor] = family(lab)  # it is there before any page
        assert "labcore.workers.supervisor" in supervisor.cmdline()
        page.goto(f"{lab.url}/maze?steps=100000")  # a run that goes at a pace and keeps no core busy
        page.get_by_role("button", name=re.compile("^Run")).click(timeout=SLOW)
        page.wait_for_url(re.compile(r"[?&]run="), timeout=SLOW)
        [run_id] = [run.id for run in store.runs()]
        wait_for(lambda: store.run(run_id).step > 0)
        for how in signal.SIGINT, signal.SIGTERM:
            started = family(lab)
            assert len(started) >= 2  # the supervisor and a worker
            with slow_reader(lab):  # the server waits for none
                lab.stop(how)
            page.goto("about:blank")  # it would look for its server again and again
            _, alive = psutil.wait_procs(started, timeout=20)
            assert not alive, how
            row = store.run(run_id)
            assert row.state == "interrupted", (how, row)
            assert [step.step for step in store.steps_after(run_id)] == list(range(1, row.step + 1)), how
            if how == signal.SIGTERM:
                break

            lab = Server(tmp_path)
            page.goto(lab.url)
            page.get_by_role("button", name=re.compile("Resume")).first.click(timeout=SLOW)
            wait_for(lambda reached=row.step: store.run(run_id).step > reached and store.run(run_id).state in GOING)
            expect(page.locator("[data-testid=stException]")).to_have_count(0)
    finally:
        lab.stop()


@contextmanager
def slow_reader(lab: Server) -> Iterator[None]:
    """A client that asked for a large file and stopped reading."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", lab.port))
        scripts = (Path(streamlit.__file__).parent / "static/static/js").iterdir()
        script = max(scripts, key=lambda file: file.stat().st_size)
        client.sendall(f"GET /static/js/{script.name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(9) == b"HTTP/1.1 "
        yield
