"""A real lab in a real browser: a server and a tab for all browser tests of a process."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from playwright._impl.assertions import LocatorAssertions
from playwright.sync_api import ConsoleMessage, Error, Page, sync_playwright
from playwright.sync_api import TimeoutError as Missing

from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import ACTIVE
from labcore.runs.store.store import Store
from tests.browser.chromium import find

ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync",
         # Pages come and go in one tab, a third of whose time went into collecting garbage and optimizing code.
         "--js-flags=--initial-heap-size=1024 --min-semi-space-size=64 --no-opt --no-maglev"]
POLL = 100  # ms between two looks at a page. Playwright looks at every frame, for which all frames would be drawn.
START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`streamlit run app/main.py` in a process group of its own, with more of its environment if need be."""

    def __init__(self, home: Path, max_runs: int = 2, port: int = 0, **more: str):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = home
        self.log = home / "server.log"
        environment = {**os.environ, "RL_LAB_HOME": str(home), "RL_LAB_MAX_RUNS": str(max_runs), **more}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.port", str(self.port),
                 "--server.headless", "true"], cwd=ROOT, env=environment, stdout=log, stderr=log,
                start_new_session=True)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=1)
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise AssertionError(f"the server did not come up:\n{self.log.read_text()}")

    def stop(self, how: int = signal.SIGINT) -> None:
        """End it as Ctrl-C does (or by another signal), and wait."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(30)


@pytest.hookimpl(tryfirst=True)  # before -m chooses among the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, so that none without the mark runs where there is no browser."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("lab"))
    yield server
    family = psutil.Process(server.process.pid).children(recursive=True)
    server.stop()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert family and not alive


OPEN = ExitStack()  # the browser of this process
LOOKS = LocatorAssertions._call_expect


async def waits_and_looks(assertions, expression: str, options: dict, title: str | None):
    """`expect`, which first waits until the element is in the page.

    Otherwise each attempt that finds no element describes the whole page for a failure message, which took up to a
    seventh of a page's time.
    """
    if not options["isNot"] and not expression.endswith((".array", ".count", ".hidden", ".detached")):
        with suppress(Missing):  # then `expect` says in words what it misses
            await assertions._actual_locator.wait_for(state="attached", timeout=options["timeout"])
    return await LOOKS(assertions, expression, options, title)


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The one tab of all tests of a process: a page opened again in it compiles no script a second time."""
    path = find()
    assert path, "there is no Chromium: python -m tests.browser.chromium installs one"
    context = OPEN.enter_context(sync_playwright()).chromium.launch_persistent_context(
        tmp_path_factory.mktemp("browser"), executable_path=path, args=FLAGS, accept_downloads=True)
    OPEN.callback(context.close)
    tab = context.pages[0]
    LocatorAssertions._call_expect = waits_and_looks
    tab.wait_for_function = partial(tab.wait_for_function, polling=POLL)
    return tab


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the browser after the last browser test: while it is open no other test can run an event loop."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        OPEN.close()


@pytest.fixture(autouse=True)
def no_run_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs that a test started end with it, or they would keep a core from the tests that follow, and a page without a
    run in its address would open one of them."""
    if "server" not in request.fixturenames:
        yield
        return
    store = Store(f"sqlite:///{request.getfixturevalue('server').home / 'lab.db'}")
    before = {run.id for run in store.runs()}
    yield
    until = time.monotonic() + START_SECONDS
    asked: set[str] = set()
    while (own := [run.id for run in store.runs(*ACTIVE) if run.id not in before]) and time.monotonic() < until:
        for run_id in {*own} - asked:
            with suppress(LabError):  # it has just ended by itself
                if store.owns(run_id):  # no worker has it: the test itself wrote its rows
                    store.set_state(run_id, "stopped")
                else:
                    store.ask(run_id, "stop")
        asked |= {*own}
        time.sleep(0.1)
    store.dispose()


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """The tab as a new one is, with little motion. Any error in the browser fails the test, and whatever its server's
    policy forbids."""
    tab.set_viewport_size({"width": 1280, "height": 720})
    tab.emulate_media(reduced_motion="reduce")
    errors: list[str] = []

    def failed(error: Error) -> None:
        errors.append(str(error))

    def noted(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            errors.append(message.text)

    tab.on("pageerror", failed)
    tab.on("console", noted)
    yield tab
    if tab.url.startswith("http"):
        tab.evaluate("() => { sessionStorage.clear(); localStorage.clear(); }")
    tab.goto("about:blank")
    tab.remove_listener("pageerror", failed)
    tab.remove_listener("console", noted)
    assert not errors


@pytest.fixture
def moving(page: Page) -> Page:
    """The tab of somebody who did not ask for little motion: films play, bars move."""
    page.emulate_media(reduced_motion="no-preference")
    return page


@pytest.fixture
def waiting(server: Server) -> str:
    """An LLM run of 2,000 steps that waits after its fourth, which keeps no core busy."""
    store = Store(f"sqlite:///{server.home / 'lab.db'}")
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=2000))
    store.ask(run_id, "pause")
    [supervisor] = psutil.Process(server.process.pid).children()
    supervisor.send_signal(signal.SIGCHLD)  # it looks for queued runs when a worker has ended
    for step in range(5):
        wait_for(lambda reached=step: (store.run(run_id).state, store.run(run_id).step) == ("paused", reached))
        if step < 4:
            store.ask(run_id, "step")
    store.dispose()
    return run_id


def away(page: Page, server: Server) -> str:
    """Leave the page of a run until that has finished. Returns the address to come back to.

    An open page draws every step of a run, which needs a multiple of the processor time of the run itself.
    """
    page.wait_for_url(re.compile(r"[?&]run="), timeout=1000 * START_SECONDS)
    address = page.url
    run_id = re.search(r"run=([\w.-]+)", address)[1]
    page.goto("about:blank")
    store = Store(f"sqlite:///{server.home / 'lab.db'}")
    wait_for(lambda: store.run(run_id).state == "finished")
    store.dispose()
    return address


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
