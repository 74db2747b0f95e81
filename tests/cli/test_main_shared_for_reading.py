"""The command line of a lab that is shared for reading: what looks works, what changes says one sentence."""

import shutil

import pytest

from labcore.cli.main import main
from labcore.exports.capsules import packing
from labcore.runs.files.paths import SHARED, home
from labcore.runs.store.store import Store

CHANGES = {
    "run": ["run", "--algorithm", "grpo", "--task", "sort", "--model", "tiny", "--steps", "1"],
    "sweep": ["sweep", "--algorithm", "grpo", "--task", "sort", "--model", "tiny", "--seeds", "1",
              "--sweep", "beta=0,0.1"],
    "stop": ["stop", "{run}"], "resume": ["resume", "{run}"], "fork": ["fork", "{run}"],
    "star": ["mark", "{run}", "--star"], "delete": ["delete", "{run}"], "restore": ["restore", "{gone}"],
    "clean": ["clean", "--files", "--yes"],
    "empty the trash": ["clean", "--trash", "--yes"],
    "import": ["import", "{file}"], "publish": ["publish"],
}
LOOKS = {"list": ["list"], "runs": ["runs"], "compare": ["compare", "{run}", "{other}"], "doctor": ["doctor", "{run}"],
         "export": ["export", "{run}", "--out", "{out}"], "replay": ["replay", "{capsule}", "--steps", "3"],
         "cost": ["cost", "grpo", "--counted"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The home of a lab with two runs and one in the trash. A capsule of the first run lies beside it."""
    folder = tmp_path_factory.mktemp("finished") / "lab"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(folder))
        for each in range(3):
            main(["run", "--kind", "maze", "--algorithm", "q_learning", "--steps", "6", "--seed", str(each),
                  "--set", "pace=0"])
        store = Store()
        run, _, gone = (run.id for run in store.runs())
        packing.write(store, run, folder.with_name("run.zip"))
        store.trash([gone])
        store.dispose()
    return folder


@pytest.fixture
def names(lab_home, finished, tmp_path, monkeypatch):
    """The runs by their names, a file to import and a folder to export to, in a copy of that lab that is shared."""
    shutil.copytree(finished, lab_home)
    store = Store()
    run, other = (each.id for each in store.runs())
    [gone] = (each.id for each in store.trashed())
    (tmp_path / "other.csv").write_text("step,loss\n1,2\n2,3\n")
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    return {"run": run, "other": other, "gone": gone, "file": str(tmp_path / "other.csv"), "out": str(tmp_path / "out"),
            "capsule": str(finished.with_name("run.zip"))}


@pytest.mark.parametrize("command", CHANGES)
def test_what_changes_is_refused(names, command, capsys):
    there = {path for path in home().rglob("*") if "lab.db" not in path.name}
    assert main([word.format(**names) for word in CHANGES[command]]) == 1
    assert SHARED in capsys.readouterr().err
    assert {path for path in home().rglob("*") if "lab.db" not in path.name} == there
    assert len(Store().runs()) == 2


@pytest.mark.parametrize("command", LOOKS)
def test_what_looks_works(names, command, capsys):
    there = {path for path in home().rglob("*") if "lab.db" not in path.name}
    assert main([word.format(**names) for word in LOOKS[command]]) == 0
    assert SHARED not in capsys.readouterr().err
    assert {path for path in home().rglob("*") if "lab.db" not in path.name} == there
