"""Labs that earlier code left behind: they open, go on, fork and replay. `fixtures/README.md` says who made them.

All goes through the command line, so that but for attention's rounding nothing here knows where a module lies.
"""

import csv
import json
import runpy
import shutil
import sqlite3
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from labcore.llm.nets import llama, packed
from tests.every import now

FIXTURES = Path(__file__).parent / "fixtures"
MACHINE = {"tokens_per_second", "env_steps_per_second", "memory", "seconds"}  # columns that no two runs share
# Of each store its runs: state, step, the step at which it ends.
RUNS = {
    "1": {"maze-stopped": ("stopped", 2, 8), "llm-stopped": ("stopped", 1, 3)},
    "2": {"maze-turned": ("finished", 8, 8), "maze-fork": ("finished", 12, 12)},
    "3": {"maze-stopped": ("stopped", 2, 8), "llm-stopped": ("stopped", 1, 3), "deep-stopped": ("stopped", 6, 10),
          "maze-turned": ("finished", 8, 8), "llm-turned": ("finished", 4, 4), "deep-turned": ("finished", 4, 4),
          "maze-fork": ("finished", 12, 12), "llm-fork": ("finished", 5, 5), "deep-fork": ("finished", 6, 6),
          "maze-whole": ("finished", 8, 8), "llm-whole": ("finished", 3, 3), "deep-whole": ("finished", 10, 10)},
}


@dataclass(frozen=True)
class Lab:
    """A copy of a lab in `root`: its runs' ids by what they are called, and its command line, which must succeed."""

    root: Path
    runs: dict[str, str]
    command: Callable[..., str]

    def json(self, *words: str):
        return json.loads(self.command(*words, "--json"))

    def listed(self) -> dict[str, dict]:
        return {row["run"]: row for row in self.json("runs")}

    def exported(self, run: str) -> Path:
        self.command("export", run, "--out", str(folder := self.root / "exported" / run))
        return folder

    def rows(self, run: str) -> list[dict[str, str]]:
        """Every number that the run's training gave, as it was logged."""
        return [{key: text for key, text in row.items() if key not in MACHINE and text}
                for row in table(self.exported(run) / "metrics.csv")]

    def spec(self, run: str) -> dict:
        return json.loads((self.exported(run) / "spec.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def attention_of_before(monkeypatch):
    """Everything by torch's fused kernel on the keys that there are, every token in a place of its own and none looked
    up, because other forms differ in their rounding."""
    monkeypatch.setattr(llama, "VECTOR", 1)
    monkeypatch.setattr(llama, "FEW", 0)
    monkeypatch.setattr(llama, "SMALL", 0)
    monkeypatch.setattr(packed, "places_of", lambda tokens, extents=None: packed.apart(tokens))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """unpacked(version): the lab of that store version, taken out of its archive once."""
    @cache
    def unpack(version: str) -> Path:
        root = tmp_path_factory.mktemp("before")
        with tarfile.open(FIXTURES / f"store-{version}.tar.xz") as packed:
            packed.extractall(root, filter="data")
        return root
    return unpack


@pytest.fixture
def opened(unpacked, tmp_path, monkeypatch, capsys):
    """opened(version): a copy of the lab of that store version."""
    def command(*words: str, status: tuple[int, ...] = (0,)) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["labcore", *words])
        with pytest.raises(SystemExit) as end:
            runpy.run_module("labcore", run_name="__main__")
        printed = capsys.readouterr()
        assert end.value.code in status, printed.err
        return printed.out

    def open_copy(version: str) -> Lab:
        root = shutil.copytree(unpacked(version), tmp_path / "before")
        at_home(root)
        monkeypatch.setenv("RL_LAB_HOME", str(root / "lab"))
        return Lab(root, json.loads((root / "runs.json").read_text("utf-8")), command)
    return open_copy


def at_home(root: Path) -> None:
    """Write this folder in the place of the one that the lab was made in."""
    with closing(sqlite3.connect(root / "lab" / "lab.db")) as store, store:
        store.execute("UPDATE lab_runs SET spec = replace(spec, '@ROOT@', ?)", (str(root),))
    for path in root.rglob("*.json"):
        path.write_text(path.read_text("utf-8").replace("@ROOT@", str(root)), "utf-8")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def manifest(capsule: Path) -> dict:
    with zipfile.ZipFile(capsule) as packed:
        return json.loads(packed.read("manifest.json"))


def same_machine(lab: Lab, run: str) -> bool:
    """Whether the run was made with this machine and these packages: only then are numbers equal to the last bit."""
    lab.command("export", run, "--capsule", "--out", str(lab.root / "here.zip"))
    told = manifest(lab.root / "here.zip")
    before, now = ({key: value for key, value in made.items() if key not in ("code", "lab", "from")}
                   for made in (told["made_with"][0], told["exported_with"]))
    return all(now.get(key, value) == value for key, value in before.items())


def assert_equal(lab: Lab, found: list[dict[str, str]], expected: list[dict[str, str]], run: str) -> None:
    """The same numbers where the machine is the same, to the last bit; there may be more of them by now."""
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    assert all(before.keys() <= now.keys() for before, now in zip(expected, found, strict=True))
    if same_machine(lab, run):
        assert [{key: now[key] for key in before} for before, now in zip(expected, found, strict=True)] == expected


# ---------------------------------------------------------------- what is in a lab


@pytest.mark.parametrize("version", RUNS)
def test_every_run_is_there_as_it_was(opened, version):
    lab = opened(version)
    names = {run: name for name, run in lab.runs.items()}
    found = {names[run]: (row["state"], row["step"], row["steps"]) for run, row in lab.listed().items() if run in names}
    assert found == RUNS[version]
    for name, (_, step, _) in found.items():
        begun = (lab.spec(lab.runs[name])["parent"] or ("", 0))[1]
        assert [int(row["step"]) for row in lab.rows(lab.runs[name])] == list(range(begun + 1, step + 1))


def test_marks_trash_and_imports(opened):
    lab = opened("3")
    row = lab.listed()[lab.runs["llm-whole"]]
    assert (row["star"], row["tags"], row["note"]) == (True, ["paper", "β = 0"], "The one.\nOf all.")
    assert [row["run"] for row in lab.json("runs", "--deleted")] == [lab.runs["maze-gone"]]
    lab.command("restore", lab.runs["maze-gone"])
    assert lab.listed()[lab.runs["maze-gone"]]["step"] == 2
    [theirs] = lab.json("import")
    assert theirs["label"] == "theirs" and theirs["steps"] == 3
    compared = lab.json("compare", lab.runs["llm-turned"], theirs["id"], "--metric", "reward")
    assert len(compared["rows"]) == 2


def test_imports_of_a_store_of_version_2(opened):
    [theirs] = opened("2").json("import")
    assert theirs["label"] == "theirs" and theirs["mapped"] == {"step": "step", "reward": "reward", "kl": "kl"}


# ---------------------------------------------------------------- runs go on


@pytest.mark.parametrize("version, kind", now(
    [("1", "maze"), ("1", "llm"), ("3", "llm"), ("3", "deep"), ("3", "maze")], ("1", "llm"), ("3", "llm")))
def test_a_stopped_run_goes_on_to_its_end(opened, version, kind):
    """In the store that has a run of the same spec which never stopped: to the very same numbers."""
    lab = opened(version)
    run = lab.runs[f"{kind}-stopped"]
    before = lab.rows(run)
    found = lab.json("resume", run)
    assert (found["state"], found["step"]) == ("finished", RUNS[version][f"{kind}-stopped"][2])
    rows = lab.rows(run)
    assert rows[:len(before)] == before and len(rows) == found["steps"]
    if whole := lab.runs.get(f"{kind}-whole"):
        assert_equal(lab, rows, lab.rows(whole), whole)


def test_a_stopped_run_goes_on_with_another_knob(opened):
    lab = opened("1")
    run = lab.runs["maze-stopped"]
    lab.command("resume", run, "--set", "alpha=0.25", "--set", "pace=0", "--json")
    turns = {row["knob"]: (row["update"], row["from"], row["to"]) for row in table(lab.exported(run) / "knobs.csv")}
    assert turns == {"alpha": ("2", "0.5", "0.25"), "pace": ("2", "4.0", "0.0")}


@pytest.mark.parametrize("kind", now(["maze", "llm", "deep"], "llm", "deep"))
def test_a_fork_at_the_start_is_its_parent_over_again(opened, kind):
    lab = opened("3")
    whole = lab.runs[f"{kind}-whole"]
    child = lab.json("fork", whole, "--step", "0")
    assert child["state"] == "finished"
    assert_equal(lab, lab.rows(child["run"]), lab.rows(whole), whole)


@pytest.mark.parametrize("parent, algorithm", now([
    ("llm-turned", "ppo"), ("llm-fork", "dpo"), ("maze-turned", "q_lambda"), ("deep-turned", "a2c"),
    ("llm-fork", "grpo"), ("deep-fork", "ppo")], ("llm-turned", "ppo"), ("deep-turned", "a2c")))
def test_a_fork_goes_on_from_the_newest_checkpoint_by_any_algorithm(opened, parent, algorithm):
    lab = opened("3")
    begun = RUNS["3"][parent][1]
    child = lab.json("fork", lab.runs[parent], "--algorithm", algorithm, "--steps", str(begun + 2))
    assert (child["state"], child["step"], child["algorithm"]) == ("finished", begun + 2, algorithm)
    assert [row["step"] for row in lab.rows(child["run"])] == [str(begun + 1), str(begun + 2)]
    assert lab.spec(child["run"])["parent"] == [lab.runs[parent], begun]


def test_a_fork_of_a_fork_in_a_store_of_version_2(opened):
    lab = opened("2")
    child = lab.json("fork", lab.runs["maze-fork"], "--steps", "13")
    assert lab.spec(child["run"])["parent"] == [lab.runs["maze-fork"], 12]
    assert lab.spec(lab.runs["maze-fork"])["parent"] == [lab.runs["maze-turned"], 8]


# ---------------------------------------------------------------- turned knobs


@pytest.mark.parametrize("name, turn, turns", [
    ("llm-turned", 2, {"beta": ("0.04", "0.25"), "learning_rate": ("0.0007", "0.002")}),
    *(pytest.param(*each, marks=pytest.mark.long) for each in (
        ("maze-turned", 3, {"alpha": ("0.5", "0.125"), "pace": ("4.0", "0.0")}),
        ("deep-turned", 2, {"clip_low": ("0.2", "0.125")})))])
def test_the_history_of_turned_knobs(opened, name, turn, turns):
    """The file says after how many updates a knob was turned; forks have the values of the step they begin at."""
    lab = opened("3")
    run = lab.runs[name]
    found = table(lab.exported(run) / "knobs.csv")
    assert {row["knob"]: (row["from"], row["to"]) for row in found} == turns
    per_step = float(lab.rows(run)[-1].get("updates", RUNS["3"][name][1])) / RUNS["3"][name][1]
    assert {float(row["update"]) for row in found} == {turn * per_step}
    for place, step in ((0, turn - 1), (1, RUNS["3"][name][1])):
        child = lab.json("fork", run, "--step", str(step), "--steps", str(step + 1))
        knobs = lab.spec(child["run"])["knobs"]
        assert {key: knobs[key] for key in turns} == {key: float(values[place]) for key, values in turns.items()}


# ---------------------------------------------------------------- capsules, and models at work


@pytest.mark.parametrize("name", ["maze-turned", "llm-turned", "deep-turned"])
def test_a_capsule_is_replayed(opened, name):
    lab = opened("3")
    capsule = lab.root / "capsules" / f"{name}.zip"
    verdict = json.loads(lab.command("replay", str(capsule), "--json", status=(0, 1)))
    assert verdict["run"] == lab.runs[name] and verdict["overtaken"] == []
    if verdict["matches"] or same_machine(lab, lab.runs[name]):
        assert verdict["matches"], verdict["difference"]
        assert verdict["steps"] == RUNS["3"][name][1] and verdict["metrics"] > 5
    else:
        difference = verdict["difference"]
        assert verdict["causes"] or difference["found"] == pytest.approx(difference["expected"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", now(["maze-turned", "llm-turned", "deep-turned"], "llm-turned"))
def test_a_capsule_is_imported_and_goes_on(opened, tmp_path, monkeypatch, name):
    lab = opened("3")
    rows = lab.rows(lab.runs[name])
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "another"))
    [run] = lab.json("import", str(lab.root / "capsules" / f"{name}.zip"))
    assert run == lab.runs[name] and lab.listed()[run]["tags"] == ["imported"]
    assert lab.rows(run) == rows
    end = RUNS["3"][name][1] + 1
    assert lab.json("fork", run, "--steps", str(end))["step"] == end


def test_the_models_of_before_answer_and_play(opened):
    lab = opened("3")
    found = lab.json("answer", lab.runs["llm-whole"], lab.runs["llm-fork"], "--prompt", "1+2=", "--count", "2")
    assert [len(column["answers"]) for column in found["columns"]] == [2, 2]
    batch = lab.json("batch", lab.runs["llm-turned"], "--prompts", "2", "--group-size", "2", "--eval-prompts", "16",
                     "--algorithms", "grpo,ppo")
    assert {"grpo", "ppo"} == set(batch["effects"])
    for name in ("maze-whole", "deep-whole", "deep-fork"):
        assert len(lab.json("play", lab.runs[name], "--episodes", "2")["returns"]) == 2
