"""What is published as one, by its path."""

from pathlib import Path

from labcore.runs.files.artifacts import units
from labcore.runs.files.paths import run_folder
from tests.runs.files.artifacts.tools import RUN


def test_paths_and_their_things(lab_home):
    at = run_folder(RUN) / "checkpoints" / "step-000050"
    assert units.whole_with(at) == units.whole_with(at / "policy" / "a") == f"{RUN}/checkpoints/step-000050"
    assert units.whole_with(lab_home / "base" / "abc" / "model") == "base/abc"
    assert units.whole_with(run_folder(RUN) / "start" / "checkpoint") == f"{RUN}/start"
    for other in (lab_home / "base", run_folder(RUN), lab_home / "jobs" / "start", run_folder(RUN) / "export" / "a"):
        assert units.whole_with(other) is None
    assert units.loose_with(run_folder(RUN) / "samples" / "a.json") == (f"{RUN}/samples", "a.json")
    assert units.loose_with(run_folder(RUN) / "spec.json") == (f"{RUN}/run", "spec.json")
    assert units.loose_with(lab_home / "lab.db") is None
    for name, unit in (("base/abc/model", "base/abc"), ("uploads/1", "uploads/1"), (RUN, RUN), ("jobs/1", None),
                       ("lab.db", None), ("base", None)):
        assert units.unit_with(lab_home / name) == unit


def test_a_path_of_another_home_is_found_in_this_one(lab_home):
    for name in ("uploads/0123456789abcdef/a.jsonl", "base/abc/model", f"{RUN}/checkpoints/step-000050/policy"):
        assert units.moved(Path("/elsewhere/base") / name) == lab_home / name
    assert units.moved(Path("/elsewhere/model")) is None and units.moved(Path("base/abc")) is None
