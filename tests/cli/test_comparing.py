"""`compare` and `import` as a user meets them."""

import gzip
import json
import re

import numpy as np
import pytest

from labcore.cli.comparing import lay_out
from labcore.cli.main import main
from labcore.runs.imports import imported
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.cli.test_main import refused
from tests.runs.imports import files
from tests.runs.imports.files import CHART, TRL
from tests.words import says


def seeded(store: Store, level: float, **more) -> list[str]:
    return [tools.stored(store, np.linspace(0, level + 0.01 * seed, 8), seed=seed, kl=[0.1 * level] * 8, **more)
            for seed in range(3)]


def test_a_comparison_in_words(capsys, store):
    good, bad = seeded(store, 0.9), seeded(store, 0.2, algorithm="rloo")
    assert main(["compare", *good, *bad]) == 0
    said = capsys.readouterr().out
    head, verdicts, plane, settings = said.strip().split("\n\n")
    assert says(head.splitlines()[0], "reward", "higher is better", "mean", "last 5 steps")
    assert [line.split()[:2] for line in head.splitlines()[2:]] == [["GRPO", "3"], ["RLOO", "3"]]
    assert "at 800 tokens" in head and "policy + reference" in head
    by, loser = verdicts.splitlines()[:2]
    assert says(by, "equal tokens", "800 each", "GRPO")
    assert says(loser, "RLOO", "1.00 [1.00, 1.00]", "p < 0.01", "GRPO wins")
    assert plane.splitlines()[1].split() == ["RLOO", "0.150", "0.0200", "Pareto-optimal"]
    assert ["advantage", "group_standardised", "leave_one_out"] in [line.split() for line in settings.splitlines()]
    assert "temperature" not in settings


def test_a_comparison_against_a_baseline_at_one_axis(capsys, store):
    good, bad = seeded(store, 0.9), seeded(store, 0.2, algorithm="rloo")
    assert main(["compare", *good, *bad, "--baseline", good[0], "--axis", "seconds"]) == 0
    said = capsys.readouterr().out
    assert "GRPO *" in said and "* the baseline" in said and "tokens" not in said.split("\n\n")[1]
    assert "at equal seconds (8 each), against GRPO" in said and "Δ -0.5" in said and "GRPO wins" in said


def test_one_seed_is_called_no_evidence(capsys, store):
    assert main(["compare", tools.stored(store, [1] * 3), tools.stored(store, [2] * 3, algorithm="rloo")]) == 0
    said = capsys.readouterr().out
    assert says(said, "GRPO  no comparison", "too few seeds", "3 on each side") and "P(A>B)" not in said
    assert "fewer than 3 seeds are not enough" in said


def test_a_fork_is_told_in_words_and_files_keep_their_keys(capsys, store):
    parent = tools.stored(store, [1] * 6)
    fork = tools.stored(store, [2] * 3, parent=(parent, 4))
    assert main(["compare", parent, fork]) == 0
    settings = capsys.readouterr().out.split("\n\n")[-2]
    assert [re.split(r"\s{2,}", line) for line in settings.splitlines()[1:]] == [
        ["fork of", "–", "GRPO sort #1 at step 4"], ["its parent's random numbers", "–", "on"]]
    assert main(["compare", parent, fork, "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["config"] == {"parent": [None, f"{parent} at step 4"], "twin": [None, True]}
    assert got["comparisons"]["final"]["GRPO"]


def test_a_comparison_as_json(capsys, store):
    runs = [*seeded(store, 0.9), *seeded(store, 0.2, algorithm="rloo")]
    assert main(["compare", *runs, "--json", "--metric", "reward"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in got["rows"]] == ["GRPO", "RLOO"] and got["metric"] == "reward"
    assert got["comparisons"]["final"]["GRPO"]["RLOO"]["verdict"] == "A"
    assert [point["on_front"] for point in got["frontier"]] == [True, True]


def test_what_cannot_be_compared(capsys, tmp_path):
    run = tools.stored(Store(), [1] * 3)
    assert "There is no run 'nobody'" in refused(capsys, "compare", run, "nobody")
    assert "There is no metric 'rewardd'" in refused(capsys, "compare", run, "--metric", "rewardd")
    assert f"The run GRPO sort #1 ({run}) has no entropy" in refused(capsys, "compare", run, "--metric", "entropy")
    assert "cannot be compared at equal environment steps" in refused(capsys, "compare", run, "--axis", "env_steps")
    assert "The baseline other is not one of" in refused(capsys, "compare", run, "--baseline", "other")
    path = tmp_path / "m.csv"
    path.write_text("epoch,reward\n1,2\n")
    assert "m.csv has no step column" in refused(capsys, "compare", run, str(path))


def test_another_tools_run_beside_ours(capsys, tmp_path):
    path = tmp_path / "log_history.csv"
    path.write_bytes(TRL)
    run = tools.stored(Store(), np.linspace(0, 1, 20), kl=[0.1] * 20)
    assert main(["import", str(path), "--label", "TRL GRPO", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)
    assert about["label"] == "TRL GRPO" and about["mapped"]["clip_frac/region"] == "clip_ratio/region_mean"
    assert main(["compare", run, about["id"]]) == 0
    said = capsys.readouterr().out
    assert "TRL GRPO (imported)" in said and "TRL GRPO (imported): Its tokens may count the prompts too" in said
    assert main(["import"]) == 0 and about["id"] in capsys.readouterr().out
    assert main(["compare", run, str(path)]) == 0 and "log_history (imported)" in capsys.readouterr().out


def test_an_import_says_what_it_read(capsys, tmp_path):
    assert main(["import"]) == 0 and "Nothing imported yet" in capsys.readouterr().out
    path = tmp_path / "chart.csv"
    path.write_bytes(CHART)
    assert main(["import", str(path)]) == 0
    said = capsys.readouterr().out
    assert "chart run a" in said and "chart b" in said and "reward from train/reward" in said
    assert says(said, "left in the file", "run a - train/reward__MIN", "run a - train/reward__MAX", "range")
    assert "optimizer updates" not in said, "W&B's own step is none"


def test_files_of_any_kind_are_imported_and_runs_in_one_are_told_apart(capsys, tmp_path):
    names = {"trainer_state.json": files.TRAINER_STATE, "two.csv": files.TWO_RUNS, "verl.jsonl": files.VERL,
             "monitor.csv.gz": gzip.compress(files.MONITOR)}
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    assert main(["import", *(str(tmp_path / name) for name in names)]) == 0
    said = capsys.readouterr().out
    assert {about.label for about in imported.listed(Store())} == {"trainer_state", "two 1", "two 2", "verl", "monitor"}
    assert says(said, "told apart", "line 12") and "(no row of log_history)" in said
    assert main(["import", str(tmp_path / "two.csv"), "--label", "PPO"]) == 0
    assert main(["compare", *(about.id for about in imported.listed(Store()) if about.label == "PPO")]) == 0
    assert "PPO (imported)" in capsys.readouterr().out, "seeds of one group"
    (tmp_path / "project.db").write_bytes(b"SQLite format 3\0")
    assert "is an SQLite database" in refused(capsys, "import", str(tmp_path / "project.db"))


def test_one_bad_file_imports_none(capsys, tmp_path):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_bytes(TRL)
    bad.write_text("epoch\n1\n")
    assert "bad.csv has no step column" in refused(capsys, "import", str(good), str(bad))
    assert "There is no file" in refused(capsys, "import", str(good), str(tmp_path / "none.csv"))
    assert imported.listed(Store()) == []


@pytest.mark.parametrize("right, lines", [(False, ["a    bb", "ccc  d"]), (True, ["a    bb", "ccc   d"])])
def test_columns_in_line(right, lines):
    assert lay_out([["a", "bb"], ["ccc", "d"]], right) == lines
