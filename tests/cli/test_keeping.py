"""`runs`, `mark`, `delete`, `restore` and `clean` as a user meets them."""

import json
import os
import time

import pytest

from labcore.cli.main import main
from labcore.runs.files import uploads
from labcore.runs.files.paths import run_folder
from labcore.runs.imports import imported
from labcore.runs.spec.run_spec import make
from labcore.runs.store.schema import runs
from tests.runs.lists.tools import CSV, ended
from tests.words import says


def printed(capsys, *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_runs_are_listed_searched_and_described(store, capsys):
    low, high = ended(store, knobs={"beta": 0.02}), ended(store, knobs={"beta": 0.1})
    other = imported.keep(store, "trl.csv", CSV)[0].id
    lines = printed(capsys, "runs").splitlines()
    assert [line.split()[0] for line in lines] == [other, high, low] and "reward 0.2" in lines[1]
    assert printed(capsys, "runs", "beta>0.05").split()[0] == high
    assert printed(capsys, "runs", "--", "grpo", "-beta=0.1").split()[0] == low
    assert "No run matches" in printed(capsys, "runs", "nothing")
    found = json.loads(printed(capsys, "runs", "--json"))
    assert [each["run"] for each in found] == [other, high, low]
    assert found[1]["best"] == {"reward": 0.2} and found[1]["bytes"] == 0 and found[0]["metrics"] == {"reward": 0.4}
    assert main(["runs", "betta=1"]) == 1 and "try beta=1" in capsys.readouterr().err


def test_a_run_is_listed_by_its_title_and_a_queued_one_with_those_that_hold_the_places(store, capsys):
    waiting, holder = store.create(make(algorithm_key="grpo", task_key="sort")), ended(store, state="running")
    store.set_waiting({waiting: 1})
    first, second = printed(capsys, "runs").splitlines()
    assert first.split()[:5] == [holder, "GRPO", "sort", "#2", "running"]
    assert second.split()[:5] == [waiting, "GRPO", "sort", "#1", "queued"]
    assert second.endswith("waiting for a free place: GRPO sort #2 (running) holds it (RL_LAB_MAX_RUNS=1)")
    assert printed(capsys, "runs", "GRPO sort #1").split()[0] == waiting
    assert [each["title"] for each in json.loads(printed(capsys, "runs", "--json"))] == ["GRPO sort #2", "GRPO sort #1"]
    assert main(["resume", holder, "--reward", "no.py:reward"]) == 1
    assert f"The rewards of GRPO sort #2 ({holder}) do not come from a function" in capsys.readouterr().err


def test_projects_group_runs_in_lists_and_comparisons(store, capsys):
    """The runs of lessons and studies are listed by their project alone."""
    one, two, other = ended(store), ended(store, knobs={"beta": 0.1}), ended(store)
    study = store.create(make(algorithm_key="grpo", task_key="sort", steps=5), sweep="sweep-a", project="Studies")
    assert main(["mark", one, two, "--project", "my paper"]) == 0
    assert printed(capsys, "runs", 'project="my paper"').count("[my paper]") == 2
    assert study not in printed(capsys, "runs") and study in printed(capsys, "runs", "project=studies")
    assert "No sweeps yet" in printed(capsys, "sweeps") and "sweep-a" in printed(capsys, "sweeps", "--all")
    table = json.loads(printed(capsys, "compare", "--project", "My Paper", "--json"))
    assert sorted(run for row in table["rows"] for run in row["runs"]) == sorted([one, two])
    other_tool = imported.keep(store, "trl.csv", CSV)[0].id
    printed(capsys, "mark", other_tool, "--project", "my paper")
    table = json.loads(printed(capsys, "compare", "--project", "my paper", "--json"))
    assert sorted(run for row in table["rows"] for run in row["runs"]) == sorted([one, two, other_tool])
    assert main(["compare", "--project", "none"]) == 1 and "my paper)" in capsys.readouterr().err
    assert main(["compare"]) == 1 and "name some runs" in capsys.readouterr().err
    assert main(["mark", other, "--project", "Lessons"]) == 1 and "belongs to the lab" in capsys.readouterr().err
    printed(capsys, "sweeps", "sweep-a", "--name", "β of the paper")
    assert json.loads(printed(capsys, "sweeps", "--all", "--json"))[0]["name"] == "β of the paper"


def test_marks_are_shown_and_taken_away(store, capsys):
    one, two = ended(store), ended(store)
    printed(capsys, "mark", one, two, "--star", "--tag", "paper", "--tag", "old")
    printed(capsys, "mark", two, "--unstar", "--untag", "old", "--note", "Look.")
    lines = printed(capsys, "runs").splitlines()
    assert lines[1].startswith(f"* {one}") and "#paper  #old" in lines[1]
    assert lines[0].startswith(f"  {two}") and "#old" not in lines[0]
    assert store.run(two).note == "Look."
    assert main(["mark", one, two, "--note", "x"]) == 1
    assert "a note belongs to one run" in capsys.readouterr().err.lower()


def test_what_is_deleted_can_be_restored_unless_it_was_for_good(store, capsys):
    run_id, other = ended(store, files=10), imported.keep(store, "trl.csv", CSV)[0].id
    assert f"restore {run_id} {other}" in printed(capsys, "delete", run_id, other)
    assert "No runs yet" in printed(capsys, "runs")
    assert printed(capsys, "runs", "--deleted").count("\n") == 2
    assert {each["run"] for each in json.loads(printed(capsys, "runs", "--deleted", "--json"))} == {run_id, other}
    printed(capsys, "restore", run_id, other)
    assert printed(capsys, "runs").count("\n") == 2 and "The trash is empty" in printed(capsys, "runs", "--deleted")
    printed(capsys, "delete", run_id, other, "--for-good")
    assert not run_folder(run_id).exists() and imported.listed(store) == imported.trashed(store) == []
    assert main(["restore", run_id]) == 1 and "There is no run" in capsys.readouterr().err


def test_a_run_that_goes_is_stopped_first(store, capsys):
    run_id = ended(store, state="running")
    assert main(["delete", run_id]) == 1 and "stop it before you delete it" in capsys.readouterr().err


def test_uploads_that_no_run_names_are_listed_and_deleted(store, capsys):
    free, used = uploads.keep("book.txt", b"a" * 3_000_000), uploads.keep("questions.jsonl", b'{"prompt": "a"}')
    store.create(make(algorithm_key="grpo", task_key="prompts", model="tiny", data=str(used)))
    assert says(printed(capsys, "clean", "--uploads"), "Would delete 0 uploads", "0 kB", "--yes")
    for path in uploads.root().rglob("*"):
        os.utime(path, (1.0, 1.0))
    told = printed(capsys, "clean", "--uploads")
    assert says(told, f"{free.parent}: book.txt\n", "Would delete 1 upload", "3.0 MB", "--yes") and free.exists()
    assert printed(capsys, "clean", "--uploads", "--yes") == "Deleted 1 upload, 3.0 MB.\n"
    assert not free.exists() and used.exists()


def test_a_clean_up_says_what_it_would_do_and_does_it_when_told(store, capsys):
    old, new = ended(store, files=1_000_000), ended(store, files=1_000_000)
    with store._writing() as connection:
        connection.execute(runs.update().where(runs.c.id == old), {"created": 1.0, "ended": time.time() - 40 * 86_400})
    assert f"{old}  GRPO sort #1\nWould delete 1 run, 5.0 MB" in printed(capsys, "clean", "--older-than", "30")
    assert len(store.runs()) == 2
    assert "Deleted files of 2 runs, 6.0 MB" in printed(capsys, "clean", "--files", "--yes")
    assert "Deleted 1 run, 2.0 MB" in printed(capsys, "clean", "--keep", "1", "--yes")
    assert [row.id for row in store.runs()] == [new] and [row.id for row in store.trashed()] == [old]
    assert "Deleted 1 run, 2.0 MB." in printed(capsys, "clean", "--trash", "--yes")
    assert store.trashed() == [] and not run_folder(old).exists()
    assert main(["clean", "--keep", "-1"]) == 1 and "give a number from 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["clean"])
