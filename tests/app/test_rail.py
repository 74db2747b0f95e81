"""The rail of RLHF: which runs belong together, what their stations say, and what a click starts."""

import json
from pathlib import Path

import pytest

from app import session
from app.llm import chain, rail
from app.llm.chain import REWARD_MODEL, RL, SFT
from labcore.runs.files.atomic import write_text
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import base_spec, make
from labcore.runs.spec.session import Record
from tests.app.seeding import link

METRICS = {SFT: {"exact_match": 0.9, "loss": 0.4}, REWARD_MODEL: {"eval_accuracy": 0.84}, RL: {
    "reward": 2.4, "reward/gold": 0.6}}
LABEL = ["label", "Label pairs"]


def trained(store, spec, state="finished"):
    """A run with one step, and an empty checkpoint of a reward model where it is one."""
    run_id = store.create(spec, mine=True)
    store.set_state(run_id, "running")
    store.append(run_id, Record(1, 10, METRICS.get(chain.stage(spec), {})), 1.0)
    folder = run_folder(run_id)
    write_text(folder / "spec.json", spec.to_json())
    name = "process_reward_model" if spec.algorithm == "prm" else "reward_model"
    weights = folder / "checkpoints" / "step-000001" / f"{name}.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    if state != "running":
        store.set_state(run_id, state)
    return store.run(run_id)


def of(algorithm, task="reviews", **more):
    return make(algorithm_key=algorithm, task_key=task, steps=5, **more)


@pytest.fixture
def model(lab):
    return trained(lab.store, of("reward_model"))


def against(model, algorithm="grpo"):
    return chain.rl_spec(model, algorithm, str)


def test_an_rl_run_leads_to_its_own_reward_model_and_that_to_its_newest_rl_run(lab, model):
    sft = trained(lab.store, base_spec(model.spec))
    first, other = trained(lab.store, against(model)), trained(lab.store, of("reward_model", seed=1))
    second = trained(lab.store, against(model, "ppo"))
    recent = lab.store.runs(kind="llm")
    assert chain.find(first.spec, first, recent) == chain.Chain(sft, model, first, RL)
    assert chain.find(model.spec, model, recent) == chain.Chain(sft, model, second, REWARD_MODEL)
    assert chain.find(other.spec, other, recent) == chain.Chain(sft, other, None, REWARD_MODEL)
    assert chain.find(sft.spec, sft, recent) == chain.Chain(sft, other, None, SFT), "the newest reward model"
    assert chain.find(of("dpo"), None, recent).here == ""


def test_rl_on_a_process_reward_model_has_its_steps_and_its_own_ensemble(lab):
    steps = trained(lab.store, of("prm", "countdown", knobs={"step_separator": "+"}))
    whole = trained(lab.store, of("reward_model", "countdown"))
    spec = against(steps)
    assert spec.knobs["reward_source"] == "process_reward" and chain.scorers(spec) == [steps.id]
    assert spec.knobs["step_separator"] == "+" and chain.stage(steps.spec) == REWARD_MODEL
    recent = lab.store.runs(kind="llm")
    assert chain.ensemble(spec, recent) == [steps.id] and chain.ensemble(against(whole), recent) == [whole.id]
    assert rail.newest(steps).keys() == {"eval_accuracy", "eval_step_accuracy"}


def test_what_is_started_has_the_same_base_and_the_rewards_of_that_model(lab):
    model = trained(lab.store, of("reward_model", knobs={"label_temperature": 0.2, "sft_steps": 30}, seed=3))
    for algorithm in chain.STARTS:
        spec = against(model, algorithm)
        assert base_spec(spec) == base_spec(model.spec)
        assert spec.knobs["reward_source"] == "reward_model" and chain.scorers(spec) == [model.id]
        assert spec.knobs["beta"] == 0.2 and spec.seed == 3, "the task's own, with which it does not over-optimise"
    assert base_spec(chain.reward_model_spec(spec)) == base_spec(model.spec)


def stations(spec, run=None, recent=()):
    found = chain.find(spec, run, recent)
    values = {each.id: rail.newest(each) for each in (found.sft, found.reward_model, found.rl) if each}
    return rail.payload(spec, found, values)["stations"]


def test_stations_say_their_number_and_what_they_wait_for(lab):
    sft, model, rl = stations(of("grpo"))
    assert sft["note"] == "trained first, at most 400 steps" and not sft["run"]
    assert model["starts"] == [["reward_model", "Train"], LABEL] and rl["note"] == "after the reward model"

    going = trained(lab.store, of("reward_model"), "running")
    _, model, rl = stations(going.spec, going, [going])
    assert model["note"] == f"#{going.number} · step 1 of 5" and model["here"] and not rl["starts"]
    assert model["run_title"] == f"Reward model reviews #{going.number}", "to be read when the mouse is on it"

    lab.store.set_state(going.id, "finished")
    done = lab.store.run(going.id)
    run = trained(lab.store, against(done, "rloo"))
    _, model, rl = stations(run.spec, run, lab.store.runs())
    assert model["numbers"] == [["held-out accuracy", "0.84"]] and not model["here"] and model["starts"] == [LABEL]
    assert rl["numbers"] == [["proxy", "2.40"], ["gold", "0.60"]] and rl["here"]
    assert rl["note"] == f"RLOO reviews #{run.number} · finished"
    assert rl["starts"] == [["ppo", "PPO"], ["grpo", "GRPO"], ["rloo", "RLOO"]]


def test_a_reward_model_that_a_run_names_is_found_however_old(page, lab, model, monkeypatch):
    run = trained(lab.store, against(model))
    monkeypatch.setattr(session, "RECENT", 1)
    drawn = []
    monkeypatch.setattr(rail, "rail", lambda data, key, on_chosen: drawn.append(data))
    page("llm", run=run.id)
    assert drawn[-1]["stations"][1]["run"] == model.id


def test_own_pairs_give_their_prompts_to_rl_on_the_same_tokens(lab, tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [("a", "b", "c"), ("d", "e", "f"), ("a", "g", "c")]
    pairs = [dict(zip(("prompt", "chosen", "rejected"), row, strict=True)) for row in rows]
    path.write_text("\n".join(map(json.dumps, pairs)))
    model = trained(lab.store, of("reward_model", "preferences", data=str(path)))
    policy = run_folder(model.id) / "checkpoints" / "step-000001" / "policy"
    policy.mkdir()
    *_, rl = stations(model.spec, model, [model])
    assert [key for key, _ in rl["starts"]] == [*chain.STARTS]
    spec = chain.rl_spec(model, "rloo", rail.prompts_of_pairs)
    assert (spec.task, spec.model, chain.scorers(spec)) == ("prompts", str(policy), [model.id])
    found = [json.loads(line) for line in Path(spec.data).read_text().splitlines()]
    assert found == [{"prompt": "a", "answer": "b"}, {"prompt": "d", "answer": "e"}]
    run = trained(lab.store, spec)
    assert chain.find(spec, run, [run, model]).reward_model == model


def test_a_click_starts_the_next_stage_and_opens_it(page, lab, model, monkeypatch):
    drawn, clicks = [], []

    def fake(data, key, on_chosen):
        drawn.append(data)
        if clicks:
            on_chosen(clicks.pop())
    monkeypatch.setattr(rail, "rail", fake)
    test = page("llm", run=model.id)
    assert drawn[-1]["stations"][1]["here"]
    for said in ({"start": "ppo"}, {"start": "label"}):
        clicks.append(said)
        test.run()
        test.run()
        assert not test.exception
    started = lab.store.run(link(test)["run"])
    assert started.spec == against(model, "ppo") and link(test)["label"] == "1"
    clicks.append({"run": model.id})
    test.run()
    assert link(test) == {"run": model.id}
    drawn.clear()
    page("llm", task="sort")
    assert not drawn, "a task without pairs has no rail"
