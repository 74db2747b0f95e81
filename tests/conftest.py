"""Every test gets a lab folder of its own, one thread, and no setting of the person who runs it."""

import gc
import itertools
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; two cores are shared by all tests

# Tests write into memory where there is room: a new store alone waits for the disk four times, and no test cuts the
# power.
MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

try:
    from xdist.scheduler import LoadFileScheduling
except ImportError:  # one process needs no schedule
    LoadFileScheduling = object

MAIN = sys.modules["__main__"]
gc.disable()  # some seven thousand tests are collected, and torch and Streamlit imported, of which nothing is garbage


class OneBrowser(LoadFileScheduling):
    """A file is tested by one process, and so are all browser tests: a page, its server and its run keep more than a
    core busy, and two of them would wait for each other."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)


# The browser tests run first, because only one process runs them, and no other should wait for it at the end. Tests
# that wait for processes run beside tests that compute, not last, when the other cores would have nothing to do.
EARLY = ("tests/browser/", "tests/app/", "tests/workers/", "tests/test_", "tests/llm/sizing/", "tests/llm/")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Do not import and search a module for doctests if it has no example."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text("utf-8")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See EARLY; all others keep their order."""
    items.sort(key=lambda item: next((place for place, folder in enumerate(EARLY) if item.nodeid.startswith(folder)),
                                     len(EARLY)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of the processes without browser tests, so that the browser and the server get most of the
    cores. Runs that a page waits for have the same low priority, and get their share."""
    others = "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith(EARLY[0])
    if others and os.getsid(0) != os.getpid():
        from labcore.workers.children import give_way

        os.setsid()
        give_way()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneBrowser | None:
    return OneBrowser(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish():
    """Exclude collected tests and imported modules from garbage collection, because they stay to the end. Collect
    garbage less often than by default, because a page leaves many objects that live a while and little garbage."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(scope="session")
def labs(tmp_path_factory):
    """Paths that are not there yet, side by side: a folder made for each of seven thousand tests takes its time."""
    folder = tmp_path_factory.mktemp("labs")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True, scope="session")
def statements_compiled_once(labs):
    """A store compiles each statement at its first use. The stores of all tests share the result, since a new one for
    each test would spend half of its time on that."""
    from labcore.runs.store import dialects

    real, compiled = dialects.open_engine, {}
    first = real(f"sqlite:///{next(labs)}.db")
    first.connect().close()  # which has it ask for the version of SQLite

    def open_engine(url: str, reads: bool = False):
        engine = real(url, reads)
        if engine.dialect.name == first.dialect.name:
            engine.dialect = first.dialect
            engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialects, "open_engine", open_engine)
        yield
    first.dispose()


@pytest.fixture(autouse=True)
def lab_home(labs, monkeypatch):
    """The folder that RL_LAB_HOME names, new and empty."""
    home = next(labs)
    monkeypatch.setenv("RL_LAB_HOME", str(home))
    for name in ("RL_LAB_STORE", "RL_LAB_MAX_RUNS", "RL_LAB_LESSONS", "RL_LAB_EXECUTOR", "RL_LAB_RAY",
                 "RL_LAB_ARTIFACTS", "RL_LAB_CACHE_GB", "RL_LAB_READ_ONLY", "RL_LAB_LOG", "RL_LAB_JUDGE_URL",
                 "RL_LAB_JUDGE_KEY", "RL_LAB_VISITORS", "RL_LAB_FRAMED_BY", "RL_LAB_WATCH_TOKEN", "RL_LAB_WATCH_URL",
                 "RL_LAB_SPOOL", "RL_LAB_ALERTS", "RL_LAB_ROLLOUTS_GB", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    if torch := sys.modules.get("torch"):  # a run that was made before may have set another number
        torch.set_num_threads(1)
    # A page that is tested takes the name of the main module, which a spawned process would run again.
    monkeypatch.setitem(sys.modules, "__main__", MAIN)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of a home on a disk each sync is milliseconds
    return home


@pytest.fixture(scope="session")
def new_store(labs):
    """The file of a store without runs: a copy of it takes a quarter of the time that its tables take."""
    from labcore.runs.store.store import Store

    home = next(labs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(home))
        Store().dispose()
    return home / "lab.db"


@pytest.fixture
def store(lab_home, new_store):
    """The store of that home."""
    from labcore.runs.files.paths import made
    from labcore.runs.store.store import Store

    made(lab_home)
    shutil.copyfile(new_store, lab_home / "lab.db")
    return Store()
