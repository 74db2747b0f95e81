"""The package: what `pip install .` gives works away from the repository, and says truly what it needs."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.request
import venv
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

import labcore
from tests.browser.conftest import free_port
from tests.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SHIPPED = ("app", "labcore", "pages")
SECONDS = 60.0  # to wait for a server or a page


def requirements(name: str) -> dict[str, Requirement]:
    """What a file of requirements pins, by the names of the packages."""
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return by_name(line for line in lines if line.strip() and not line.startswith(("#", "-")))


def by_name(lines) -> dict[str, Requirement]:
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


NEEDED = by_name(PROJECT["dependencies"])
EXTRAS = {name: by_name(lines) for name, lines in PROJECT["optional-dependencies"].items()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True,
                   capture_output=True, timeout=120)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory) -> Path:
    """`rl-lab` in an environment of its own, which finds the other packages where this one has them."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    packages, = (place / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"], "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel], check=True,
                   timeout=120)
    return place / "bin" / "rl-lab"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A working directory in which nothing of the lab is; the lab makes its folder there."""
    return tmp_path_factory.mktemp("elsewhere")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("RL_LAB_HOME", "PYTHONPATH")}


def printed(command: Path, home: Path, *words: str) -> str:
    done = subprocess.run([command, *words], cwd=home, timeout=120, capture_output=True, text=True, check=False,
                          env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_and_two_names_of_its_own(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"labcore", "rl_visual_lab"}
    there = {path.relative_to(ROOT).as_posix() for folder in SHIPPED for path in (ROOT / folder).rglob("*")
             if path.is_file() and "__pycache__" not in path.parts and path.name != "conftest.py"
             and path.parent.name != "static"}
    assert len(there) > 500 and {"labcore/analysis/studies/recorded.json", "app/.streamlit/config.toml"} < there
    assert {name.removeprefix("rl_visual_lab/") for name in names} == {*there, "app/static/.gitkeep"}


def trained(command: Path, home: Path, *chosen: str) -> str:
    """Train for one step. Returns the run's id."""
    run = json.loads(printed(command, home, "run", *chosen, "--steps", "1", "--json"))
    assert (run["state"], run["step"]) == ("finished", 1)
    return run["run"]


@pytest.mark.long  # a test above checks that all files are in the package, so also the base
def test_the_command_trains_from_the_base_that_is_shipped(command, home):
    trained(command, home, "--algorithm", "grpo", "--task", "sort")


def test_the_command_trains_and_opens_the_lab_from_any_folder(command, home):
    run = trained(command, home, "--kind", "maze", "--algorithm", "q_learning", "--task", "corridors")
    port, log = free_port(), home / "log"
    with log.open("wb") as file:
        server = subprocess.Popen([command, "--server.port", str(port), "--server.headless", "true"], cwd=home,
                                  env={**environment(), "RL_LAB_READ_ONLY": "1"},  # which loads torch for no run
                                  stdout=file, stderr=file, start_new_session=True)
    try:
        wait_for_health(port, server, log)
        assert "Your last run" in shown(port, "")
        assert "labcore/classic/tabular/" in shown(port, "maze", f"run={run}"), "the code of its equation"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


def wait_for_health(port: int, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1) as answer:
            assert answer.read() == b"ok"
            return
        time.sleep(0.1)
    raise AssertionError(f"the server did not come up:\n{log.read_text()}")


def shown(port: int, page: str, query: str = "") -> str:
    """All that the server sends of a page, as a browser asks for it. Fails on an exception in it."""
    ask, parts = BackMsg(), []
    ask.rerun_script.page_name, ask.rerun_script.query_string = page, query
    with connect(f"ws://127.0.0.1:{port}/_stcore/stream", subprotocols=["streamlit"], max_size=None) as socket:
        socket.send(ask.SerializeToString())
        while True:
            message = ForwardMsg.FromString(socket.recv(SECONDS))
            assert message.delta.new_element.WhichOneof("type") != "exception", message
            parts.append(str(message))
            if message.HasField("script_finished"):
                return "\n".join(parts)


def test_each_lower_bound_admits_what_is_pinned():
    pinned = requirements("requirements.txt")
    for name, needed in NEEDED.items():
        [pin] = pinned[name].specifier
        assert needed.specifier.contains(pin.version), name
        assert {each.operator for each in needed.specifier} == {">="}, f"{name}: a bound, not a version"
    assert "pytest" in pinned and "pytest" not in NEEDED
    assert {canonicalize_name(name) for name in set(pinned) - set(NEEDED)} == {
        "pytest", "accelerate", "latex2sympy2-extended", "antlr4-python3-runtime"}, "of packages that NEEDED names"


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_what_its_file_pins(extra):
    pinned = {name: each for name, each in requirements(f"requirements-{extra}.txt").items() if name not in NEEDED}
    assert set(EXTRAS[extra]) == set(pinned)
    for name, each in EXTRAS[extra].items():
        [pin] = pinned[name].specifier
        assert each.specifier.contains(pin.version) and each.extras == pinned[name].extras, name


def test_the_version_is_that_of_the_newest_release_and_said_once():
    releases = re.findall(r"^## \[(\S+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert releases == sorted(releases, key=lambda each: (Version(each[0]), each[1]), reverse=True)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (citation["version"], str(citation["date-released"])) == releases[0]
    assert labcore.__version__ == releases[0][0] and "version" in PROJECT["dynamic"]


def test_the_pythons_are_those_that_the_tests_run_with():
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    assert named == set(steps["jobs"]["test"]["strategy"]["matrix"]["python"])
    assert min(named, key=Version) == PROJECT["requires-python"].removeprefix(">=")
