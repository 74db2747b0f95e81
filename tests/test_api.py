"""The lab from Python: the same runs, the same numbers. `test_walls` checks that listing runs does not load torch."""

import json
import re
import subprocess
import sys
from functools import partial

import pytest

from labcore import api
from labcore.api import processes
from labcore.api import run as run_module
from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.store.store import Store
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.imports import ROOT
from tests.workers.test_launcher import FAKE

# The command of a supervisor that does not load torch, because loading takes seconds. It trains stand-ins for language
# models. They cannot read a real base model, so they start without one.
WITHOUT_TORCH = (sys.executable, "-c", FAKE + "from tests.runs.fake import FakeSession; start = FakeSession.start; "
                 "FakeSession.start = lambda spec, base=None, resume=None: start(spec, None, resume); "
                 "supervisor.main(preload=(), fork=True)")
MAZE = {"kind": "maze", "task": "textbook", "progress": False}


@pytest.fixture(autouse=True, scope="module")
def light():
    """Run jobs in the process of the test, because no supervisor has torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "Launcher", partial(Launcher, command=WITHOUT_TORCH))
        patch.setattr(Launcher, "compute", lambda launcher, spec: jobs.compute(spec) and jobs.job_id(spec))
        yield
        api.close()


@pytest.fixture
def maze() -> api.Run:
    return api.train("q_learning", steps=12, **MAZE)


@pytest.fixture(scope="module")
def home_of_sort(tmp_path_factory) -> tuple[str, api.Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", home := str(tmp_path_factory.mktemp("home")))
        return home, api.train("grpo", steps=5, prompts_per_step=4, group_size=4, progress=False)


@pytest.fixture
def sort(home_of_sort, monkeypatch) -> api.Run:
    """A small language-model run, trained once for all tests of this file."""
    monkeypatch.setenv("RL_LAB_HOME", home_of_sort[0])
    return home_of_sort[1]


def test_a_run_is_that_of_the_store(maze):
    assert (maze.state, maze.step, maze.spec.steps) == ("finished", 12, 12) and "step 12 of 12" in repr(maze)
    rows, frame = Store().steps_after(maze.id), maze.metrics()
    assert frame.index.tolist() == [row.step for row in rows]
    for row in rows:
        logged = frame.loc[row.step].dropna()
        assert {key: logged[key] for key in row.metrics} == row.metrics and logged["env_steps"] == row.env_steps


def test_the_rows_of_a_long_run_are_read_in_parts(maze, monkeypatch):
    whole = maze.metrics()
    monkeypatch.setattr("labcore.runs.store.steps.MANY", 5)
    monkeypatch.setattr("labcore.runs.store.steps.CHUNK", 5)
    monkeypatch.setattr(Store, "steps_after", lambda *_: pytest.fail("all rows were read at once"))
    assert maze.metrics().equals(whole)


def test_the_same_spec_gives_the_numbers_of_the_command_line(maze):
    run_id = Store().create(maze.spec, mine=True)
    drive(Store(), run_id)
    own, other = (frame.drop(columns=["seconds", "memory", "env_steps_per_second"], errors="ignore")
                  for frame in (maze.metrics(), api.load(run_id).metrics()))
    assert own.equals(other)


def test_runs_are_listed_and_searched(maze):
    api.train("sarsa", steps=3, alpha=0.3, **MAZE)
    assert api.runs()["algorithm"].tolist() == ["SARSA", "Q-learning"]
    assert api.runs("alpha=0.3")["steps"].tolist() == [3] and api.runs("alpha=0.9").empty
    assert api.runs("alpha=0.9").columns.tolist() == api.runs().columns.tolist()


def test_a_fork_differs_by_what_was_changed(maze):
    fork = maze.fork(maze.checkpoints[-1], steps=20, progress=False, alpha=0.05)
    assert fork.spec.parent == (maze.id, 12) and fork.spec.knobs["alpha"] == 0.05 and fork.step == 20


def test_comparing_counts_seeds_and_names_the_better(maze):
    others = [api.train("q_learning", steps=12, seed=seed, **MAZE) for seed in (1, 2)]
    worse = [api.train("sarsa", steps=12, seed=seed, **MAZE) for seed in (0, 1, 2)]
    table = api.compare(maze, *others, *(run.id for run in worse))
    assert table["seeds"].tolist() == [3, 3] and (table["low"] <= table["final"]).all()
    better = [column for column in table.columns if column.startswith("better_than")]
    assert better and all(isinstance(names, list) for column in better for names in table[column])
    with pytest.raises(LabError, match="no metric 'nothing'"):
        api.compare(maze, metric="nothing")


def test_completions_are_those_that_were_kept(sort):
    run = sort
    frame = run.rollouts()
    assert run.steps_with_rollouts() == [1, 5] and set(frame["step"]) == {5}
    assert frame["group"].nunique() == 4 and len(frame) == 16
    assert (frame["reward"] == (frame["exact"] * 1.0)).mean() > 0 and frame["tokens"].map(len).min() > 0
    with pytest.raises(LabError, match=r"step 3.*nearest.*(1|5)"):
        run.rollouts(3)


def test_pairs_are_completions_too(sort):
    frame = api.train("dpo", steps=1, pairs_per_step=4, pair_prompts=16, eval_prompts=8, progress=False).rollouts(1)
    pairs = frame[frame["side"] != "sampled"]
    assert pairs["side"].tolist() == ["chosen", "rejected"] * 4 and pairs["group"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (pairs["logprob"] < 0).all() and pairs["prompt"].str.endswith("=").all()


def test_the_trained_model_answers(sort):
    found = sort.answer("bac=", count=3, answer="abc")
    assert found.columns.tolist() == ["text", "exact", "logprob", "base_logprob"] and len(found) == 3
    assert (found["exact"] == (found["text"] == "abc")).all() and (found["logprob"] < 0).all()


def test_a_notebook_shows_charts_and_completions_as_text(sort, monkeypatch):
    output = sort._repr_html_()
    assert output.count("<svg") == 3 and "finished, step 5 of 5" in output and "<th>completion</th>" in output
    monkeypatch.setattr(run_module, "_completions", lambda samples: [{"prompt": "<script>", "completion": "</table>"}])
    assert "<code>&lt;script&gt;</code>" in (escaped := sort._repr_html_()) and escaped.count("</table>") == 1


def test_in_a_notebook_the_run_is_drawn_while_it_trains(monkeypatch):
    drawn = []

    class Output:
        def update(self, run):
            drawn.append(run.step)
    monkeypatch.setattr(processes, "output", lambda run: Output())
    monkeypatch.setattr(processes, "DRAW_SECONDS", 0.0)
    api.train("q_learning", steps=6, kind="maze")
    assert drawn == [1, 2, 3, 4, 5, 6, 6]


def test_an_export_is_what_the_command_writes(sort, tmp_path):
    assert (sort.export(tmp_path / "out") / "checkpoint" / "model.safetensors").is_file()


@pytest.mark.usefixtures("sort")  # whose supervisor has loaded what it needs
def test_in_the_background_knobs_are_set_and_the_run_stopped():
    run = api.train("q_learning", steps=100_000, pace=20.0, background=True, **MAZE)
    while run.step < 2:
        run.wait(0.2, progress=False)
    assert run.set(alpha=0.05).state == "running"
    with pytest.raises(LabError, match="alpha"):
        run.set(alpha=-7)
    assert run.stop().wait(progress=False).state == "stopped" and run.step < 100_000
    resumed = run.resume(background=True)
    resumed.stop().wait(progress=False)
    assert resumed.state == "stopped" and resumed.id == run.id


@pytest.mark.usefixtures("sort")
def test_the_notebook_of_the_docs_runs():
    """Every cell in order, with runs of two steps."""
    before = len(api.runs())
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(re.sub(r"steps=\d+", "steps=2", "".join(cell["source"])), names)
    assert {"run", "free", "live"} <= names.keys() and len(api.runs()) == before + 3
    assert [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"] == list(range(1, 8))


@pytest.mark.parametrize("call, said", [
    (lambda: api.train("grop"), "grop"), (lambda: api.train(nothing=3), "nothing"),
    (lambda: api.train(data="/no/such/file.jsonl"), "/no/such/file.jsonl"), (lambda: api.load("none"), "none"),
    (lambda: api.train(kind="chess"), "chess"), (lambda: api.runs('"'), "quote")])
def test_bad_input_is_one_sentence(call, said):
    with pytest.raises(LabError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_run_whose_process_is_gone_is_not_waited_for_and_can_be_resumed(maze):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    store = Store()
    store.claim(run_id := store.create(maze.spec), pid=dead.pid)
    assert store.run(run_id).state == "starting"
    run = api.load(run_id)
    assert run.wait(20, progress=False).state == "interrupted"
    assert api.runs().loc[run_id, "state"] == "interrupted" and run.resume().state == "finished"


def test_a_run_without_completions_says_so():
    run = api.train("q_learning", steps=1, **MAZE)
    with pytest.raises(LabError, match="no completions"):
        run.rollouts()
    with pytest.raises(LabError, match="finished"):
        run.set(alpha=0.3)
    with pytest.raises(LabError, match="no language model"):
        run.answer("bac=")
