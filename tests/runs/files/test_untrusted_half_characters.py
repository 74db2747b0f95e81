"""A lone half of a surrogate pair, which a model, a file's name or an error may bring, and UTF-8 cannot write."""

import csv
import io
import json

import pytest

from labcore.errors import LabError
from labcore.exports.folder import write_events
from labcore.llm.session import LlmSession
from labcore.runs import jobs
from labcore.runs.files import atomic, tables, uploads
from labcore.runs.files.paths import path_of
from labcore.runs.imports import imported
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Event
from labcore.runs.store.store import Store
from labcore.tasks import labels
from labcore.tasks.task import Pair
from labcore.workers.pictures import Pictures

HALF, WHOLE = "a\ud800b", "a�b"


@pytest.mark.parametrize("half", ["\ud800", "\udbff", "\udc80", "\udfff"])
def test_any_half_is_replaced_and_a_whole_character_stays(tmp_path, half):
    atomic.write_text(tmp_path / "a.txt", f"{half}é😀")
    assert (tmp_path / "a.txt").read_text("utf-8") == "�é😀"


def test_samples(tmp_path):
    Pictures(tmp_path).write(1, {"step": 1, "groups": [{"prompt": HALF, "completions": [{HALF: HALF}]}]})
    found = json.loads((tmp_path / "step-000001.json").read_text("utf-8"))
    assert len(found.pop("prompt_hashes")) == 1
    assert found == {"step": 1, "groups": [{"prompt": WHOLE, "completions": [{WHOLE: WHOLE}]}]}


def test_a_checkpoint_of_pairs_that_a_model_made(tmp_path):
    session = LlmSession.start(make(algorithm_key="dpo", task_key="sort", device="cpu", knobs={"sft_steps": 0}))
    session.pairs = [Pair(HALF, HALF, "b")]
    session.save(tmp_path)
    found, = json.loads((tmp_path / "state.json").read_text("utf-8"))["pairs"]
    assert (found["prompt"], found["chosen"]) == (WHOLE, WHOLE)


def test_rows_that_are_added(tmp_path):
    atomic.append_row(tmp_path / "rows.jsonl", {"text": HALF})
    assert [*atomic.rows(tmp_path / "rows.jsonl")] == [{"text": WHOLE}]


def test_csv(tmp_path):
    assert next(csv.reader(io.StringIO(tables.written([HALF], []).decode()))) == [WHOLE]
    write_events(tmp_path / "events.csv", [Event(1, 2, "note", {"text": HALF}, 0.5)])
    assert WHOLE in (tmp_path / "events.csv").read_text("utf-8")


def test_uploads_and_their_names():
    assert uploads.keep(f"{HALF}.txt", b"1").name == f"{WHOLE}.txt"


def test_imported_metrics_and_their_label():
    found, = imported.keep(Store(), f"{HALF}.csv", b"step,kl\n1,0.5\n", label=HALF)
    assert found.label == WHOLE and found.source.endswith(f"{WHOLE}.csv")


def test_labels():
    spec = make(algorithm_key="grpo", task_key="sort")
    pair = {"prompt": HALF, "answer": "", "a": "x", "b": HALF, "a_truncated": False, "b_truncated": False, "line": 1}
    labels.add(spec, pair, "a")
    row, = labels.rows(spec)
    assert (row["prompt"], row["b"]) == (WHOLE, WHOLE)
    assert uploads.file_at(labels.keep([{"prompt": HALF}])).read_text("utf-8") == f'{{"prompt": "{WHOLE}"}}\n'


def test_questions_for_a_job_and_its_answers():
    job = jobs.put({"job": "sizes", "prompt": HALF})
    assert job == jobs.job_id({"job": "sizes", "prompt": WHOLE})
    jobs.fail(job, HALF)
    assert jobs.outcome(job).error == WHOLE


@pytest.mark.parametrize("half", ["a\ud800", "a\udc80"])  # the second stands for a byte in a name that is no UTF-8
def test_paths_are_refused_in_a_sentence(half, tmp_path):
    for given in (lambda: path_of(half), lambda: make(algorithm_key="grpo", task_key="prompts", data=half),
                  lambda: make(algorithm_key="grpo", task_key="sort", model=half)):
        with pytest.raises(LabError, match="holds a character that no name can"):
            given()
