"""`export` in all its forms and `replay`, as a user has them."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from labcore.cli.main import main
from labcore.runs.store.store import Store
from tests.runs import fake
from tests.words import says

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_id():
    assert main(["run", "--kind", "maze", "--algorithm", "q_learning", "--steps", "8", "--json"]) == 0
    return Store().runs()[0].id


@pytest.fixture
def capsule(run_id, tmp_path, capsys) -> Path:
    assert main(["export", run_id, "--capsule", "--out", str(tmp_path / "run.zip")]) == 0
    capsys.readouterr()
    return tmp_path / "run.zip"


def labcore(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labcore", *arguments], capture_output=True, text=True, cwd=ROOT,
                          env=os.environ, timeout=120)


@pytest.mark.long
def test_a_capsule_is_replayed_in_another_process_and_another_lab(run_id, capsule, tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "other"))
    done = labcore("replay", str(capsule))
    assert done.returncode == 0, done.stderr
    assert says(done.stdout, run_id, "bit for bit", "8 steps", "12 metrics")
    assert not (tmp_path / "other").exists()  # nothing is left in the user's lab


def test_json_and_steps(run_id, capsule, capsys):
    assert main(["replay", str(capsule), "--steps", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"run": run_id, "steps": 5, "metrics": 12, "overtaken": [], "difference": None, "causes": [],
                    "matches": True}


def test_a_difference_is_named_with_both_values_and_the_cause(capsule, capsys):
    with zipfile.ZipFile(capsule) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files["manifest.json"])
    manifest["made_with"][0] |= {"numpy": "1.0"}
    spec = json.loads(files["spec.json"]) | {"seed": 7}
    state = json.loads(files["checkpoints/step-000000/state.json"])
    state["rng"]["state"]["state"] += 1  # other random numbers
    for name, text in (("spec.json", spec), ("checkpoints/step-000000/state.json", state)):
        files[name] = json.dumps(text).encode()
        manifest["files"][name]["sha256"] = hashlib.sha256(files[name]).hexdigest()
    with zipfile.ZipFile(capsule, "w") as archive:
        for name, text in {**files, "manifest.json": json.dumps(manifest)}.items():
            archive.writestr(name, text)
    assert main(["replay", str(capsule)]) == 1
    told = capsys.readouterr().out
    assert "does not match: " in told and " at step 1, and the capsule has " in told
    assert "The cause: likely because of numpy (1.0 then, " in told


def test_bad_capsules_are_one_sentence_and_status_2(tmp_path, capsys):
    (tmp_path / "x.zip").write_text("no")
    for path in ("x.zip", "none.zip", "."):
        assert main(["replay", str(tmp_path / path)]) == 2
        said = capsys.readouterr()
        assert said.err.startswith("labcore: ") and said.err.count("\n") == 1 and not said.out


def test_export_as_a_folder_with_tensorboard(run_id, tmp_path, capsys):
    assert main(["export", run_id, "--out", str(tmp_path / "plain")]) == 0
    assert main(["export", run_id, "--out", str(tmp_path / "board"), "--tensorboard"]) == 0
    names = {folder: {path.name.partition(".tfevents")[0] for path in (tmp_path / folder).iterdir()}
             for folder in ("plain", "board")}
    assert names["plain"] == {"checkpoint", "events.csv", "knobs.csv", "metrics.csv", "spec.json"}
    assert names["board"] == names["plain"] | {"events.out"}


def test_scripts_for_other_tools(tmp_path, capsys):
    run_id = Store().create(fake.grpo(7, group_size=4))
    for key, words in (("trl", "GRPOConfig("), ("verl", "verl.trainer.main_ppo"), ("openrlhf", "train_ppo_ray"),
                       ("ms-swift", "swift rlhf")):
        assert main(["export", run_id, "--to", key]) == 0
        printed = capsys.readouterr().out
        assert words in printed and run_id in printed
        assert main(["export", run_id, "--to", key, "--out", str(tmp_path / key)]) == 0
        assert (tmp_path / key).read_text() == printed
        capsys.readouterr()


def test_runs_as_one_html_file(run_id, tmp_path, capfd):
    """A process of its own writes the file."""
    assert main(["export", run_id, "--html", str(tmp_path / "run.html")]) == 0
    text = (tmp_path / "run.html").read_text()
    assert text.startswith("<!DOCTYPE html>") and "Q-learning" in text
    assert capfd.readouterr().out == f"{tmp_path / 'run.html'}\n"


@pytest.mark.long
def test_a_run_that_is_not_there_is_no_html_file(tmp_path, capfd):
    assert main(["export", "nobody", "--html", str(tmp_path / "none.html")]) == 1
    said = capfd.readouterr()
    assert said.err.startswith("labcore: ") and said.err.count("\n") == 1 and not said.out
    assert not (tmp_path / "none.html").exists()


def test_runs_as_figures(run_id, tmp_path, capsys, monkeypatch):
    from labcore.exports import figures

    monkeypatch.setattr(figures, "with_switched", lambda *_: ("episode_return",))
    monkeypatch.setattr(figures, "SIZES", {"one-column": figures.SIZES["one-column"]})
    options = ["--figures", str(tmp_path), "--axis", "env_steps", "--smoothing", "0.5"]
    assert main(["export", run_id, run_id, *options]) == 0
    printed = capsys.readouterr().out.split()
    assert str(tmp_path / "captions.md") in printed and all(Path(name).exists() for name in printed)


def test_exports_that_cannot_be(run_id, tmp_path, capsys):
    for arguments, words in ((["--capsule", "--tensorboard", "--out", "x"], "only when a folder is exported"),
                             (["--to", "trl", "--tensorboard"], "only when a folder is exported"),
                             ([], "output is missing"),
                             (["--capsule"], "output is missing"),
                             (["--capsule", "--out", str(tmp_path)], "is a folder"),
                             (["--to", "trl"], "not a run of a language model"),
                             (["--html", "x.html", "--best"], "not with --html"),
                             (["--figures", "x", "--out", "y"], "names its own output"),
                             (["--out", "x", "--axis", "tokens"], "need --figures"),
                             (["other", "--out", "x"], "one run after the other")):
        assert main(["export", run_id, *arguments]) == 1
        assert words in capsys.readouterr().err
    assert main(["export", "nobody", "--capsule", "--out", str(tmp_path / "x.zip")]) == 1
    assert main(["export", Store().create(fake.grpo(7)), "--to", "trl", "--out", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err and not (tmp_path / "x.zip").exists()
    with pytest.raises(SystemExit) as left:
        main(["export", run_id, "--capsule", "--to", "trl"])
    assert left.value.code == 2
