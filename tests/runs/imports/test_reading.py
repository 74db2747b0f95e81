"""Files of other tools: what they become, and one sentence for every file that is none."""

from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.exports.folder import write_metrics
from labcore.runs.imports import kinds, reading, table
from labcore.runs.imports.reading import parse
from labcore.runs.imports.run import UNKNOWN, Foreign
from labcore.runs.store.rows import Step
from tests.analysis.compare import tools
from tests.every import every
from tests.runs.imports.files import CHART, SB3, TRL, WANDB
from tests.words import says


def rows(run: Foreign) -> list[Step]:
    return [*run.steps()]


def only(content: bytes, name: str = "metrics.csv", label: str = "") -> Foreign:
    found = parse(name, content, label)
    assert len(found) == 1
    return found[0]


def test_a_log_history_of_trl():
    run = only(TRL, "log_history.csv")
    assert run.label == "log_history" and [row.step for row in rows(run)] == [10, 20]
    assert rows(run)[0].tokens == 1000 and rows(run)[1].tokens == 2000 and rows(run)[0].seconds == 0
    assert rows(run)[0].metrics == {"loss": 0.1, "grad_norm": 1.5, "learning_rate": 1e-5, "num_tokens": 1000.0,
                                    "completions/mean_length": 7.5, "completions/truncated_frac": 0.25, "reward": 0.2,
                                    "reward/fmt": 0.3, "kl": 0.001, "clip_frac/region": 0.0, "epoch": 0.1,
                                    "updates": 10.0}
    assert run.mapped["completions/truncated_frac"] == "completions/clipped_ratio"
    assert run.left == {"train_runtime": UNKNOWN}
    assert any("prompts too" in note for note in run.notes) and any("optimizer updates" in note for note in run.notes)


def test_the_log_of_ms_swift():
    """Its last line repeats all others, and is no row."""
    recorded = Path(__file__).parents[2] / "watch" / "following" / "recorded"
    content = (recorded / "ms-swift" / "logging.jsonl").read_bytes()
    run = only(content, "logging.jsonl")
    assert [row.step for row in rows(run)] == [1, 2, 3, 4] and run.mapped["entropy"] == "entropy/mean"
    assert rows(run)[0].metrics | {"reward": 0.875, "reward/Score": 0.875, "updates": 1.0} == rows(run)[0].metrics


def test_a_history_of_wandb_places_rows_by_the_trainers_step():
    run = only(WANDB)
    assert [(row.step, row.seconds) for row in rows(run)] == [(1, 1.5), (2, 2.75)]  # two lines of step 2 are one
    assert rows(run)[0].metrics == {"reward": 0.25, "updates": 1.0}
    assert rows(run)[1].metrics == {"reward": 0.5, "kl": 0.75, "updates": 2.0}
    assert run.mapped["step"] == "train/global_step" and run.left["name"] == UNKNOWN


def test_a_wandb_history_without_a_trainer_has_no_updates():
    run = only(b"_step,reward\n5,1\n")
    assert rows(run)[0].metrics == {"reward": 1.0} and run.notes == ()


def test_a_chart_of_wandb_is_one_run_for_each_line():
    first, second = parse("chart.csv", CHART)
    assert (first.label, second.label) == ("chart run a", "chart b")
    assert [(row.step, row.metrics["reward"]) for row in rows(first)] == [(1, 0.5), (3, 0.75)]
    assert [(row.step, row.metrics["reward"]) for row in rows(second)] == [(3, 0.125)]
    assert all("W&B drew as one" in first.left[f"run a - train/reward{end}"] for end in ("__MIN", "__MAX"))


def test_long_texts_are_passed_over():
    run = only(b'step,reward,completion\n1,2,"' + b"x" * 200_000 + b'"\n')
    assert rows(run)[0].metrics["reward"] == 2 and run.left == {"completion": UNKNOWN}


def test_a_progress_file_of_stable_baselines():
    run = only(SB3)
    assert [(row.step, row.env_steps, row.seconds) for row in rows(run)] == [(1, 2048, 3.0), (2, 4096, 6.0)]
    assert rows(run)[1].metrics == {"episode_return": 31.0, "updates": 10.0}  # their clip_fraction is not ours


def test_our_own_export_comes_back_as_it_was(tmp_path, store):
    run_id = tools.stored(store, [0.1 + 0.2, 1e-17, 0.7], kl=[0.1, 0.2, 1 / 3])
    write_metrics(tmp_path / "metrics.csv", store.steps_after(run_id))
    run = only((tmp_path / "metrics.csv").read_bytes())
    assert rows(run) == store.steps_after(run_id) and run.left == {} and run.notes == ()


def test_rows_are_put_in_order_and_counters_stay():
    run = only(b"step,tokens,reward\n3,,0.3\n1,50,0.1\n2,90,nan\n4,,1e999\n5,,0.5\n")
    assert [(row.step, row.tokens) for row in rows(run)] == [(1, 50), (2, 90), (3, 90), (4, 90), (5, 90)]
    assert [str(row.metrics.get("reward")) for row in rows(run)] == ["0.1", "nan", "0.3", "inf", "0.5"]


@every("content, words", [
    (b"", "m.csv is empty"),
    (b"\n \n", "m.csv is empty"),
    (b"step,reward\n", "has a header and no rows"),
    (b"epoch,reward\n1,2\n", "m.csv has no step column"),
    (b"step,banana\n1,2\n", "has no metric that the lab knows among its 2 columns"),
    (b"step,tokens\n1,2\n", "has no metric that the lab knows"),
    (b"step,reward\n1,\n", "has no number in the metrics that the lab knows"),
    (b"step,reward\n1,2\n2,high\n", "Line 3 of m.csv has 'high' in the column reward"),
    (b"step,reward\nx,2\n", "Line 2 of m.csv has 'x' in the column step"),
    (b"step,reward\n1.5,2\n", "Line 2 of m.csv has the step 1.5"),
    (b"step,reward\n-1,2\n", "has the step -1"),
    (b"step,reward\n1e300,2\n", "has the step 1e+300"),
    (b"step,reward\n1,2,3\n", "Line 2 of m.csv has 3 cells and the header 2"),
    (b'step,reward\n1,"2\n', "is not CSV"),
    (b"step,reward\n1,\xff\n", "m.csv is not UTF-8: line 2 has the byte 0xff"),
])
def test_a_file_that_cannot_be_used(content, words):
    with pytest.raises(LabError) as refused:
        parse("m.csv", content)
    assert words in str(refused.value) and str(refused.value).count(". ") == 0


def test_what_is_not_finite_is_said_and_kept():
    run = only(b"step,reward,loss\n1,0.5,0.1\n2,0.5,\n3,0.5,nan\n4,0.5,-inf\n")
    assert [str(row.metrics.get("loss")) for row in rows(run)] == ["0.1", "None", "nan", "-inf"]
    assert any(says(note, "NaN or infinite", "loss", "2 of 3 rows", "step 3") for note in run.notes)
    assert str(run.metrics["loss"].tolist()) == "[0.1, nan, nan, nan]", "what is drawn"


@pytest.mark.parametrize("content", [
    b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": NaN}\n{"step": 3, "loss": -Infinity}\n',
    b'{"log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": NaN}, {"step": 3, "loss": -Infinity}]}'])
def test_what_trainers_write_beside_json_is_read(content):
    [run] = parse("trainer_state.json", content)
    assert [str(row.metrics.get("loss")) for row in rows(run)] == ["0.5", "nan", "-inf"]


def test_a_file_that_is_too_large(monkeypatch):
    monkeypatch.setattr(kinds, "LIMIT", 10)
    with pytest.raises(LabError, match="above the limit"):
        parse("m.csv", TRL)


@pytest.mark.parametrize("limit, words", [
    ("MOST_NUMBERS", "has more than 3 numbers that the lab would keep"), ("MOST_RUNS", "has 2 chart lines")])
def test_more_than_the_lab_keeps(monkeypatch, limit, words):
    monkeypatch.setattr(reading, limit, 3 if limit == "MOST_NUMBERS" else 1)
    with pytest.raises(LabError, match=words):
        parse("m.csv", CHART)


def test_a_line_is_read_once_and_no_other_is_held(monkeypatch):
    """However many runs are in a file, and however many columns."""
    read = []
    monkeypatch.setattr(table, "_number", lambda *given, number=table._number: read.append(given) or number(*given))
    chart = "step," + ",".join(f"r{n} - reward" for n in range(40)) + "\n" + f"1{',1' * 40}\n" * 3
    assert len(parse("m.csv", chart.encode())) == 40 and len(read) == 3 * 41
