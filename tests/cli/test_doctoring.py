"""`doctor` as a user meets it: of runs, and of metrics of other tools."""

import json

import pytest

from labcore.cli.main import main
from labcore.errors import Diverged
from labcore.runs.imports import imported
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.cli.test_main import refused
from tests.runs.imports import files
from tests.words import says


def seeded(store: Store, share: float, seed: int = 0) -> str:
    """A run of 40 steps in which such a share of the groups agrees."""
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=40, seed=seed), mine=True)
    store.set_state(run_id, "running")
    for step in range(1, 41):
        store.append(run_id, Record(step, step, {"reward": 0.3, "frac_reward_zero_std": share, "kl": 0.01}), step)
    return run_id


def test_a_run_with_a_finding_and_its_fix(capsys):
    run_id = seeded(Store(), 0.8)
    assert main(["doctor", run_id]) == 0
    head, said, fix, command = capsys.readouterr().out.splitlines()
    assert head == f"GRPO sort #1 ({run_id}), step 40: 1 finding"
    assert said.startswith("  warning  Most groups give no gradient: 80") and said.endswith("(since step 15)")
    assert says(fix, "Fix:", "larger groups", "medium difficulty", "higher temperature")
    assert command.strip() == f"python -m labcore set {run_id} group_size=16"
    Store().set_state(run_id, "finished")
    assert main(["doctor", run_id]) == 0
    assert capsys.readouterr().out.splitlines()[-1].strip() == f"python -m labcore fork {run_id} --set group_size=16"


def test_a_healthy_run_and_several_with_one_seed(capsys, store):
    fine, ill = seeded(store, 0.1), seeded(store, 0.8, seed=1)
    assert main(["doctor", fine]) == 0
    assert capsys.readouterr().out == f"GRPO sort #1 ({fine}), step 40: healthy\n"
    assert main(["doctor", fine, ill, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [[each["rule"] for each in run["findings"]] for run in found["runs"]] == [[], ["zero_variance"]]
    assert found["runs"][1]["findings"][0]["since"] == found["runs"][1]["course"][0]["step"] == 15
    assert found["together"][0]["verdict"] == "Too few seeds to compare"


def test_metrics_of_another_tool_and_what_has_passed(capsys, tmp_path):
    path = tmp_path / "log_history.csv"
    gap = "sampling/sampling_logp_difference/mean"
    path.write_text(f"step,reward,kl,clip_ratio/region_mean,{gap}\n" + "".join(
        f"{step},0.3,{2 if step < 40 else 0.01},0,0.2\n" for step in range(1, 101)))
    assert main(["doctor", str(path)]) == 0
    said = capsys.readouterr().out
    assert "Sampler and trainer disagree: log-probabilities differ by 0.2 nats/token" in said
    assert "The clip has no effect: no token was clipped" in said
    assert "  passed   The policy is far from the reference: KL 2 nats/token" in said and "labcore" not in said


def test_an_imported_run_and_the_step_at_which_its_loss_broke(capsys, tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(files.NAN_LOSS)
    (about,) = imported.keep(Store(), "log.csv", files.NAN_LOSS, "TRL")
    said = []
    for name in (about.id, str(path)):
        assert main(["doctor", name]) == 0
        said.append(capsys.readouterr().out.splitlines())
    assert said[0][0] == f"TRL ({about.id}), step 50: 1 finding" and said[0][1:] == said[1][1:]
    assert says(said[0][1], "problem", "loss NaN from step 21 on", "gradient norm infinite from step 21 on")
    assert main(["doctor", about.id, str(path), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [[each["rule"] for each in run["findings"]] for run in runs] == [["not_finite"]] * 2
    Store().trash([about.id])
    assert "is in the trash: restore it first" in refused(capsys, "doctor", about.id)
    assert "There is no imported run 'imported-none'" in refused(capsys, "doctor", "imported-none")
    assert "is an event file of TensorBoard" in refused(capsys, "doctor", str(_file(
        tmp_path, "brain.Event:2", "events.out.tfevents.1.host.0")))


@pytest.mark.parametrize("steps", [0, 12])
def test_a_run_that_diverged_is_not_called_healthy(capsys, steps, store):
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=40), mine=True)
    store.set_state(run_id, "running")
    for step in range(1, steps + 1):
        store.append(run_id, Record(step, step, {"reward": 0.3}), step)
    store.set_state(run_id, "diverged", str(Diverged(steps + 1, "loss")))
    assert main(["doctor", run_id]) == 0
    said = capsys.readouterr().out
    assert says(said, "not finite", "loss", f"step {steps + 1}", "since step")
    assert f"python -m labcore fork {run_id} --set learning_rate=" in said


def test_what_cannot_be_examined_is_one_sentence(capsys, tmp_path):
    assert says(refused(capsys, "doctor", "nowhere.csv"), "no file nowhere.csv", "check the path")
    assert "no step column" in refused(capsys, "doctor", str(_file(tmp_path, "a,b\n1,2\n")))
    assert "There is no run" in refused(capsys, "doctor", "grpo-sort-none")
    empty = Store().create(make(algorithm_key="grpo", task_key="sort"), mine=True)
    assert "has no step yet" in refused(capsys, "doctor", empty)


def _file(folder, text, name="metrics.csv"):
    path = folder / name
    path.write_text(text)
    return path
