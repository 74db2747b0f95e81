"""Each layout that people have: its step axis, its numbers, and what stays in the file."""

import gzip
import io

import pandas as pd
import pytest

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.runs.imports import kinds, objects
from labcore.runs.imports.layouts import OWN, known, layout_of
from labcore.runs.imports.reading import parse
from tests.every import every
from tests.references import golden
from tests.runs.imports import files
from tests.words import saying, says


def read(content: bytes, name: str = "log.csv") -> tuple[dict[str, list], dict[str, str], tuple[str, ...]]:
    """The only run in a file: its columns, what is left and the notes."""
    run, = parse(name, content)
    return {key: column.tolist() for key, column in run.columns.items() if column.any()}, run.left, run.notes


def parquet(**columns) -> bytes:
    pd.DataFrame(columns).to_parquet(file := io.BytesIO())
    return file.getvalue()


@pytest.mark.parametrize("content", [
    files.HASH, files.SAVETXT, files.SEP, files.LOG_HISTORY, files.JSONL, files.NESTED,
    gzip.compress(files.JSONL, mtime=0), gzip.compress(files.SEP, mtime=0), b"\xef\xbb\xbf" + files.JSONL,
    parquet(step=[1, 2], reward=[0.25, 0.5]),
    b"# step,reward\n# in two lines\nstep\treward\n1\t0.25\n2\t0.5\n", b"step,reward\r1,0.25\r2,0.5\r"])
def test_one_table_in_every_kind_of_file(content):
    assert read(content)[0] == {"step": [1, 2], "reward": [0.25, 0.5], "updates": [1, 2]}


def test_a_trainers_state():
    columns, left, _ = read(files.TRAINER_STATE, "trainer_state.json")
    assert columns == {"step": [1, 2], "reward": [0.25, 0.5], "kl": [0, 0.001], "loss": [0, 0.001], "updates": [1, 2]}
    assert left == dict.fromkeys(("best_metric", "epoch", "global_step", "max_steps"), "no row of log_history")


def test_rows_of_evaluations_are_placed_by_the_steps_of_the_environment():
    columns, left, _ = read(files.SB3_EVAL, "progress.csv")
    assert columns["step"] == columns["env_steps"] == [2048, 3000, 4096]
    run, = parse("progress.csv", files.SB3_EVAL)
    assert [row.metrics for row in run.steps()] == [
        {"episode_return": 22}, {"eval_return": 200, "eval_length": 190}, {"episode_return": 26}]
    assert run.mapped["step"] == "time/total_timesteps"
    assert [*left] == ["time/iterations"] and says(left["time/iterations"], "time/total_timesteps")


def test_an_off_policy_log_of_stable_baselines_has_no_iterations():
    columns, left, _ = read(files.SB3_DQN, "progress.csv")
    assert columns["step"] == columns["env_steps"] == [80, 170] and columns["epsilon"] == [0.95, 0.9]
    assert left == {"time/episodes": "not known to the lab"}


def test_a_monitor_has_a_row_per_episode():
    columns, left, notes = read(files.MONITOR, "0.monitor.csv")
    assert columns == {"step": [1, 2], "env_steps": [22, 52], "seconds": [0.5, 0.9], "episode_return": [22, 30],
                       "episode_length": [22, 30]}
    assert left == {"the lines that begin with #": "comments"} and "Its steps are episodes" in notes[0]
    again = parse("0.monitor.csv", files.MONITOR * 2)
    assert [run.columns["env_steps"].tolist() for run in again] == [[22, 52]] * 2, "a second run was appended"


def test_a_step_of_verl_is_no_update():
    columns, left, _ = read(files.VERL, "verl.jsonl")
    assert columns["step"] == [1, 2] and columns["reward"] == [0.25, 0.5] and "updates" not in columns
    assert str(columns["policy_loss"]) == "[0.5, nan]", "verl writes NaN as null"
    assert [*left] == ["step"] and says(left["step"], "training/global_step")
    run, = parse("chart.csv", files.VERL_WANDB)
    assert run.mapped == {"step": "training/global_step", "reward": "critic/rewards/mean"}
    [(left, why)] = run.left.items()
    assert left == "grpo_run - critic/rewards/mean__MIN" and says(why, "range", "W&B")


def test_global_steps_of_cleanrl_are_steps_of_the_environment():
    columns, _, notes = read(files.CLEANRL)
    assert columns["step"] == columns["env_steps"] == [512, 1024] and "updates" not in columns
    assert [says(note, "steps", "environment") for note in notes] == [True]


def test_a_csv_of_tensorboard_is_named_by_its_file():
    columns, _, notes = read(files.TENSORBOARD, "run-PPO_1-tag-rollout_ep_rew_mean.csv")
    assert columns == {"step": [1, 2], "seconds": [0, 2], "episode_return": [0.25, 0.5]}
    assert [says(note, "seconds", "first row") for note in notes] == [True]
    assert read(files.TENSORBOARD, "run-.-tag-train_clip_ratio_region_mean.csv")[0]["clip_frac/region"] == [0.25, 0.5]
    with pytest.raises(LabError, match=saying("column", "value", "for example reward")):
        parse("data.csv", files.TENSORBOARD)


def test_a_last_line_that_was_cut_off_is_left_out_and_said():
    for content in (files.HASH + b"3", files.JSONL + b'{"step": 3, "rew'):
        columns, _, notes = read(content)
        assert columns["reward"] == [0.25, 0.5] and "is cut off and was left out" in notes[-1]


@every("name, content, words", [
    ("events.out.tfevents.17.host", b"\x18\0\0\0\0\0\0\0\xa3\x7fK\"\t\0\0\xc0J\x1a\rbrain.Event:2",
     "is an event file of TensorBoard: open it in TensorBoard"),
    ("my-project.db", b"SQLite format 3\0" + b"\0" * 80, "is an SQLite database, such as Trackio"),
    ("run-1.wandb", b":W&B\xbe\xe1\0", "is a log of W&B in its own format: upload it by wandb sync"),
    ("log.xlsx", b"PK\x03\x04\x14\0", "is a zip or an Excel workbook: unpack it, or save its sheet as CSV"),
    ("log.pkl", b"\x80\x04\x95", "is a pickle, which the lab never reads"),
    ("log.npy", b"\x93NUMPY\x01\0", "is an array of NumPy or HDF5"),
    ("log.csv", "step,reward\n1,2\n".encode("utf-16"), "is UTF-16: save it as UTF-8"),
    ("log", b"\x01\0\x02", "is a binary file of a kind that the lab does not know"),
    ("log.csv.gz", gzip.compress(files.HASH, mtime=0)[:-9], "is not a whole gzip file"),
    ("log.parquet", b"PAR1  PAR1", "is not a whole Parquet file"),
    ("log.parquet", parquet(step=[1, 2], reward=["a", "b"]), "Line 1 of log.parquet has 'a' in the column reward"),
    ("log.json", b'{"step": 1', "log.json is not JSON"),
    ("log.json", b"[1, 2]", "has no list of JSON objects"),
    ("log.jsonl", b'{"step": 1, "reward": 1}\n[2]\n', "Line 2 of log.jsonl is no JSON object"),
    ("log.jsonl", b'{"step": 1, "reward": 1}\nx\n', "Line 2 of log.jsonl is not JSON"),
    ("log.jsonl", b'{"step": 1, "reward": [2]}\n{"step": 2}\n', "Line 1 of log.jsonl has [2] in the column reward"),
    ("log.jsonl", b'{"step": 1, "reward": 1}\n{"x": "\xff"}\n', "is not UTF-8: line 2 has the byte 0xff"),
])
def test_what_the_lab_does_not_read_is_called_by_its_kind(name, content, words):
    with pytest.raises(LabError) as refused:
        parse(name, content)
    assert words in str(refused.value) and name in str(refused.value) and str(refused.value).count(". ") == 0


def test_what_unpacks_to_more_than_the_limit_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(kinds, "LIMIT", 2**20)
    monkeypatch.setattr(objects, "DOCUMENT", 100)
    with pytest.raises(LabError, match="unpacks to more than the limit of 1 MB"):
        parse("log.csv.gz", gzip.compress(b"step,reward\n" + b"\n" * 2**22))
    with pytest.raises(LabError, match=saying("limit of 0 MB", "JSON lines")):
        parse("log.json", files.TRAINER_STATE)
    assert parse("log.jsonl", files.JSONL + b"\n" * 200), "lines are read one by one"


TRL = golden("trl_callback")
HELD_OUT = {"eval_reward": "held_out/reward", "eval_completions/mean_length": "held_out/mean_length"}
FOUND = {
    "GRPOTrainer": {"kl": "kl", "reward": "reward", "rewards/rising/mean": "reward/rising",
                    "clip_ratio/region_mean": "clip_frac/region", **HELD_OUT},
    "RLOOTrainer": {"rewards/rising/mean": "reward/rising", "completions/clipped_ratio": "completions/truncated_frac",
                    **HELD_OUT},
    "DPOTrainer": {"logps/chosen": "logps/chosen", "eval_rewards/accuracies": "held_out/pair_accuracy",
                   "eval_rewards/margins": "held_out/margin"},
    "KTOTrainer": {"kl": "kl/mismatched", "logps/rejected": "logps/rejected"},
    "SFTTrainer": {"mean_token_accuracy": "mean_token_accuracy",
                   "eval_mean_token_accuracy": "held_out/token_accuracy"},
    "RewardTrainer": {"accuracy": "accuracy", "eval_accuracy": "eval_accuracy", "eval_margin": "eval_margin"}}


@pytest.mark.parametrize("trainer", FOUND)
def test_the_names_of_each_trainer_of_trl(trainer):
    columns = {key for event in TRL[trainer]["events"] if event["event"] == "on_log" for key in event["logs"]}
    layout = layout_of(columns)
    found = {column: [key for key, _ in known(layout, column) if key in METRICS] for column in columns}
    assert {column: found[column] for column in FOUND[trainer]} == {
        column: [key] for column, key in FOUND[trainer].items()}
    keys = [key for names in found.values() for key in names]
    assert len(keys) == len({*keys}), "two columns are one metric"
    assert not [column for column in found if column.startswith("eval_") and any(
        key == column.removeprefix("eval_") for key in found[column])], "an evaluation is no number of the training"


def test_parts_of_a_reward_keep_their_names_and_are_read_again():
    [(key, _)] = known(layout_of(["step"]), "train/rewards/My format/mean")
    assert key == "reward/My format" and known(OWN, key) == [(key, 0)]
    assert known(layout_of(["step"]), "rewards/mean") == [("reward", 4)] and not known(OWN, "rewards/My format/mean")
