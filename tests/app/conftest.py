"""A lab in a temporary folder, without processes: pages are run in this one by AppTest."""

import shutil
import tomllib
from functools import cache
from pathlib import Path

import pytest
import streamlit as st
from streamlit import config
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, local_script_runner

import app.jobs
import app.lab
from labcore.runs import jobs
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.app.asking import Answering, trained
from tests.app.seeding import ran

ROOT = Path(__file__).resolve().parents[2]


class FakeLauncher:
    """Creates runs and starts nothing."""

    def __init__(self, store):
        self.store, self.resumed, self.woken = store, [], 0

    def start(self, spec, warm_up=False):
        return self.store.create(spec, warm_up=warm_up)

    def resume(self, run_id, knobs=None):
        self.resumed.append(run_id)
        self.store.requeue(run_id, knobs)

    def wake(self):
        self.woken += 1

    def compute(self, spec):
        return jobs.put(spec)  # and never done

    def cancel(self, job):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True, scope="session")
def searched_and_compiled_once():
    """Every AppTest searches all installed packages for components, which takes longer than the page itself, and
    compiles the scripts of the page, each run of it anew."""
    scripts = ScriptCache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_script_runner, "ScriptCache", lambda: scripts)
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True, scope="session")
def as_the_server_is_set():
    """An AppTest would count every command for the usage statistics, and collect the garbage after every script."""
    told = tomllib.loads((ROOT / "app" / ".streamlit" / "config.toml").read_text())
    for section in ("browser", "runner"):
        for name, value in told[section].items():
            config.set_option(f"{section}.{name}", value)


@pytest.fixture(autouse=True)
def no_supervisor(monkeypatch):
    """A real one would load torch and keep a core busy; parts of a page ask for the lab where a test does not."""
    monkeypatch.setattr(app.lab, "Launcher", FakeLauncher)


@pytest.fixture
def lab(tmp_path, monkeypatch, new_store):
    if not (tmp_path / "lab.db").exists():  # else the test has put a store there
        shutil.copyfile(new_store, tmp_path / "lab.db")
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    monkeypatch.delenv("RL_LAB_STORE", raising=False)
    monkeypatch.setattr(app.jobs, "AT_ONCE_SECONDS", 0)  # and does no job a moment later
    st.cache_resource.clear()
    st.cache_data.clear()
    yield app.lab.lab()
    st.cache_resource.clear()


@pytest.fixture
def page(lab):
    """page("llm", run="…") opens a page as a link would, and fails on any exception shown in it."""
    def opened(name="home", **query):
        test = AppTest.from_file(str(ROOT / "app" / "navigation.py"), default_timeout=30)
        if name != "home":
            test.switch_page(f"../pages/{name}.py")
        for key, value in query.items():
            test.query_params[key] = value
        return ran(test)
    return opened


@pytest.fixture
def grpo(lab):
    """A run whose models can be asked."""
    return trained(lab.store)


@pytest.fixture
def asked(lab):
    """A launcher that answers at once, and what it was asked."""
    return Answering(lab.launcher)


@pytest.fixture(scope="session")
def stored_pair(tmp_path_factory):
    """The home and the runs of `pair`."""
    home = tmp_path_factory.mktemp("pair")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(home))
        store = Store()
        runs = [tools.stored(store, [level + 0.01 * number] * 8, seed=number, algorithm=key,
                             kl=[0.01 * number + 0.1] * 8)
                for key, level in (("grpo", 0.9), ("rloo", 0.4)) for number in range(3)]
        store.dispose()
    return home, runs


@pytest.fixture
def pair(lab, stored_pair, tmp_path):
    """Three seeds of GRPO, clearly above three of RLOO, in a lab without other runs."""
    home, runs = stored_pair
    lab.store.dispose()
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    return [*runs]
