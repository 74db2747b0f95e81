"""The lab is stopped while a run goes: the worker checkpoints, nothing is orphaned, the next start offers to go on."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from labcore.store.rows import GOING
from labcore.store.store import Store
from tests.browser.conftest import Server
from tests.browser.test_llm_lab import SLOW, start_run

pytestmark = pytest.mark.browser


def family(server: Server) -> list[psutil.Process]:
    """Everything that the server started, as it is now."""
    return psutil.Process(server.process.pid).children(recursive=True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_the_lab_loses_nothing(page: Page, tmp_path: Path, how: int) -> None:
    first = Server(tmp_path)
    try:
        run_id = start_run(page, first, "?steps=5000&sft_steps=0")
        started = family(first)
        assert len(started) >= 2  # the supervisor and a worker
    finally:
        first.stop(how)
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive
    store = Store(f"sqlite:///{tmp_path / 'lab.db'}")
    row = store.run(run_id)
    assert row.state == "interrupted", row
    assert [step.step for step in store.steps_after(run_id)] == list(range(1, row.step + 1))

    second = Server(tmp_path)
    try:
        page.goto(second.url)
        page.get_by_role("button", name=re.compile("Resume")).first.click(timeout=SLOW)
        wait_for(lambda: store.run(run_id).step > row.step and store.run(run_id).state in GOING)
        expect(page.locator("[data-testid=stException]")).to_have_count(0)
    finally:
        second.stop()


def wait_for(true, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
