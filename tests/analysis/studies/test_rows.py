"""Every study can be run and priced, finds its runs again, and comes to the verdict that its runs' numbers give."""

import json
from dataclasses import replace

import numpy as np
import pytest

from labcore.analysis import time_left
from labcore.analysis.studies import plan, recorded
from labcore.analysis.studies import result as measures
from labcore.analysis.studies.result import result
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import REWARD_MODEL, Measure
from labcore.analysis.studies.verdict import WORDS, judged, together
from labcore.analysis.time_left import Pace
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.exports import recorded_studies
from labcore.exports.capsules import reading
from labcore.llm.sizing.pace import setting
from labcore.runs import jobs
from labcore.runs.files.atomic import write_text
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.runs.sweep import MOST_RUNS
from labcore.runs.traces import trace


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    monkeypatch.delenv("RL_LAB_STORE", raising=False)
    return Store()


def made(store: Store, spec, rewards, state: str = "finished") -> str:
    run_id = store.create(spec, mine=True, sweep="sweep-a")
    store.set_state(run_id, "running")
    for step, reward in enumerate(rewards, 1):
        store.append(run_id, Record(step, step, {"reward": reward, "updates": float(step)}), 0.5 * step)
    store.set_state(run_id, state)
    return run_id


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_study_can_be_run_and_priced(study):
    specs = plan.every(study)
    assert len(study.seeds) >= 3 and len(specs) <= MOST_RUNS + study.scorers
    labels = [each.label for each in study.settings]
    assert len({*labels}) == len(labels) and study.winner in labels
    assert study.deciding and len({each.label for each in study.contrasts}) == len(study.contrasts)
    for contrast in study.contrasts:
        assert {*contrast.weights} <= {*labels} and contrast.low < contrast.high and contrast.measure.unit
        assert all(metric in METRICS for metric in measures.metrics_of(contrast.measure))
    paces = {setting(spec): Pace(0.0, 0.1) for spec in specs}
    found = time_left.estimate(specs, paces, {}, 1)
    assert not found.unknown and found.seconds > 0.1 * sum(spec.steps for spec in specs)


def test_runs_are_found_by_what_they_are_and_what_is_missing_is_known(store):
    study = STUDIES["samples"]
    wanted = plan.missing(study, plan.found(study, []))
    assert len(wanted) == 12 and [spec.seed for spec in wanted[:4]] == [0] * 4
    made(store, wanted[0], [0.1], "failed")
    again, stopped = made(store, wanted[0], [0.2]), made(store, wanted[1], [0.3], "stopped")
    made(store, replace(wanted[2], steps=7), [0.4])
    runs = plan.found(study, store.sweep_runs()[::-1])
    assert [row.id for row in runs.all] == [again, stopped]
    assert wanted[0] not in plan.missing(study, runs) and len(plan.missing(study, runs)) == 11
    assert result(store, study, runs) is None
    with pytest.raises(LabError, match="All runs of this study exist"):
        plan.queue(store, [])


def test_titles_are_words():
    titles = [study.title for study in STUDIES.values()]
    assert len({*titles}) == len(titles) and min(map(len, titles)) > 3


def test_a_teacher_comes_first_and_its_name_does_not_matter(store, monkeypatch):
    study = STUDIES["larger_teacher"]
    first, = plan.missing(study, plan.found(study, []))
    assert (first.algorithm, first.model) == ("sft", "small")
    teacher = made(store, first, [0.98])
    monkeypatch.setattr("labcore.runs.spec.model_names.pinned_teacher", lambda name: name)
    todo = plan.missing(study, plan.found(study, store.sweep_runs()[::-1]))
    named = [spec.knobs.get("teacher") for spec in todo[:3]]
    assert len(todo) == 9 and named[0] == teacher and "SFT base" in named[1] and named[2] is None
    for spec in todo[:2]:
        made(store, spec, [0.5])
    runs = plan.found(study, store.sweep_runs()[::-1])
    assert [len(rows) for rows in runs.of.values()] == [1, 1, 0] and len(plan.missing(study, runs)) == 7


def test_a_study_asks_for_a_model_and_finds_its_runs_on_it(store, tmp_path, monkeypatch):
    study = STUDIES["real_distillation"]
    with pytest.raises(LabError, match="give --model"):
        plan.of_model(study, "")
    with pytest.raises(LabError, match="leave --model out"):
        plan.of_model(STUDIES["samples"], "gpt2")
    monkeypatch.setattr("labcore.runs.spec.model_names.pinned_teacher", lambda name: name)
    for name in ("one", "two"):  # two folders with models of different readers
        (tmp_path / name).mkdir()
        write_text(tmp_path / name / "config.json", json.dumps({"model_type": "gpt2", "n_embd": 8}))
        named = plan.of_model(study, str(tmp_path / name))
        first, = plan.missing(named, plan.found(named, store.sweep_runs()[::-1]))
        assert first.model == str(tmp_path / name) and first.data.endswith("sums.jsonl")
        teacher = made(store, replace(first, steps=study.scorer_steps), [1.0])
        todo = plan.missing(named, plan.found(named, store.sweep_runs()[::-1]))
        assert len(todo) == 6 and [spec.knobs.get("teacher") for spec in todo[:2]] == [teacher, None]
        made(store, todo[0], [0.5])
    runs = plan.found(study, store.sweep_runs()[::-1])
    assert {row.spec.model for row in runs.all} == {str(tmp_path / "two")}, "where none is named, of the newest"
    assert len(plan.found(plan.of_model(study, str(tmp_path / "one")), store.sweep_runs()[::-1]).all) == 2


def test_the_model_of_a_study_may_be_an_earlier_run(store):
    folder = run_folder("mine") / "checkpoints" / "step-000003" / "policy"
    write_text(folder / "config.json", json.dumps({"model_type": "gpt2", "n_embd": 8}))
    named = plan.of_model(STUDIES["real_distillation"], "mine@3")
    first, = plan.missing(named, plan.found(named, []))
    assert first.model == str(folder) and "mine@3" in named.on


def test_reward_models_come_first_and_their_names_do_not_matter(store, monkeypatch):
    study = STUDIES["over_optimisation"]
    scorers = plan.missing(study, plan.found(study, []))
    assert [spec.algorithm for spec in scorers] == ["reward_model"] * 5
    for spec in scorers:
        made(store, spec, [0.5])
    monkeypatch.setattr("labcore.runs.spec.model_names.pinned_reward_models", lambda names: names)
    todo = plan.missing(study, plan.found(study, store.sweep_runs()[::-1]))
    members = {spec.knobs["reward_model"].count(",") + 1 for spec in todo}
    assert len(todo) == 15 and members == {1, 3, 5}
    made(store, todo[0], [0.5])
    assert len(plan.missing(study, plan.found(study, store.sweep_runs()[::-1]))) == 14


@pytest.mark.parametrize("rloo, raft, verdict", [(0.8, 0.5, "agrees"), (0.5, 0.8, "disagrees")])
def test_a_result_is_that_of_the_runs_numbers(store, rloo, raft, verdict):
    study = STUDIES["samples"]
    for spec in plan.missing(study, plan.found(study, [])):
        level = rloo if spec.algorithm == study.settings[0].algorithm else raft
        made(store, spec, [level + 0.001 * spec.seed] * 2)
    runs = plan.found(study, store.sweep_runs()[::-1])
    found = result(store, study, runs)
    assert found.verdict == verdict and found.findings[0].estimate.mean == pytest.approx(rloo - raft)
    assert found.seconds == pytest.approx(12 * 1.0)
    store.log(runs.all[0].id, "knob", {"knob": "learning_rate", "from": 1e-3, "to": 1e-2,
                                       "update": 1, "between": 1}, 2)
    with pytest.raises(LabError, match="changed mid-run"):
        result(store, study, runs)


def test_each_measure_takes_its_number(store):
    spec = plan.spec_of(STUDIES["cost"], STUDIES["cost"].settings[0], 0)
    run_id = made(store, spec, [0.0, 1.0, 2.0, 3.0])
    row, columns = store.run(run_id), trace(store.run(run_id), store.steps_after(run_id))
    taken = {how: measures.of_run(Measure(how, rows=2), row, columns)
             for how in ("last", "mean", "change", "models")}
    assert taken == {"last": 2.5, "mean": 1.5, "change": 2.0, "models": 4}
    jobs.put(measures.asked(Measure("step_seconds"), row))
    write_text(jobs.folder(jobs.job_id(measures.asked(Measure("step_seconds"), row))) / "result.json", json.dumps(
        {"seconds": [0.5, 0.25, 0.3]}))
    assert measures.of_run(Measure("step_seconds"), row, columns) == 0.25
    answers = [{"exact": right} for right in (True, False, False, None)]
    jobs.put(asked := measures.asked(Measure("solved"), row))
    write_text(jobs.folder(jobs.job_id(asked)) / "result.json", json.dumps({"columns": [{"answers": answers}]}))
    assert measures.of_run(Measure("solved"), row, columns) == 0.25 and asked["models"] == [f"{run_id}@4"]
    completions = [{"exact": False, "tokens": ["a"] * 3}, {"exact": True, "tokens": ["a"] * 9}]
    write_text(run_folder(run_id) / "samples" / "step-000004.json", json.dumps(
        {"step": 4, "groups": [{"completions": completions}]}))
    assert measures.of_run(Measure("wrong_length", rows=2), row, columns) == 3.0
    write_text(run_folder(run_id) / "samples" / "step-000003.json", json.dumps(
        {"step": 3, "groups": [{"completions": completions}], "wrong_lengths": [3, 9]}))
    assert measures.of_run(Measure("wrong_length", rows=2), row, columns) == 5.0, "of the whole batch where it is there"
    with pytest.raises(LabError, match="has no data for"):
        measures.of_run(Measure(metric="kl"), row, columns)


def test_the_mass_is_that_of_later_positions_by_their_completions():
    masses, counts = ([0.1, 0.2], [0.5, 0.6], [0.9, 1.0]), (9, 3, 1)
    places = [{"mass": mass, "samples": count} for mass, count in zip(masses, counts, strict=True)]
    assert measures.mass_of({"top": [1, 4], "columns": [{"positions": places}]}, 4) == pytest.approx(0.7)
    assert np.isnan(measures.mass_of({"top": [1], "columns": [{"positions": places[:1]}]}, 1))


def test_what_was_recorded_covers_all_studies_and_follows_the_rule():
    kept = recorded.read()
    assert list(kept) == [key for key, study in STUDIES.items() if key in kept or not study.asks_model]
    for key, each in kept.items():
        study, verdicts = STUDIES[key], []
        assert list(each.findings) == [contrast.label for contrast in study.contrasts]
        for contrast in study.contrasts:
            found, said = each.findings[contrast.label]
            assert said == judged(found, contrast.low, contrast.high) and found.seeds >= 3
            verdicts += [said] if contrast.decides else []
        assert each.verdict == together(verdicts)


def test_a_recorded_result_of_other_contrasts_is_not_read(tmp_path, monkeypatch):
    content = json.loads(recorded.FILE.read_text("utf-8"))
    old, kept = content["samples"]["findings"], content["cost"]
    old["an earlier contrast"] = old.pop(next(iter(old)))
    monkeypatch.setattr(recorded, "FILE", tmp_path / "recorded.json")
    recorded.FILE.write_text(json.dumps({"samples": content["samples"], "cost": kept, "no study": kept}), "utf-8")
    assert [*recorded.read.__wrapped__()] == ["cost"]


def test_the_table_of_the_docs_is_what_was_recorded():
    text = recorded_studies.PAGE.read_text("utf-8")
    assert recorded_studies.table(recorded.read()) in text
    assert all(f"| {study.title} | {study.claim}" in text for study in STUDIES.values())
    assert text.count("not run yet") == len(STUDIES) - len(recorded.read())
    assert all(words in recorded_studies.table(recorded.read()) for words in ("agrees", WORDS["unclear"]))


@pytest.mark.parametrize("key", [key for key, study in STUDIES.items() if not study.asks_model])
def test_each_capsule_opens_is_small_and_is_of_its_winner(key):
    each, study = recorded.read()[key], STUDIES[key]
    file = recorded_studies.CAPSULES / each.capsule
    assert recorded_studies.digest(file) == each.digest
    winner, = (setting for setting in study.settings if setting.label == study.winner)
    heavy = bool(winner.members) and study.scorer_knob == REWARD_MODEL  # a teacher is no part of it
    assert file.stat().st_size < (3_000_000 if heavy else 50_000)
    with reading.unpacked(file) as capsule:
        scorers = str(capsule.spec.knobs.get(study.scorer_knob, "")).split(",")  # their ids differ from lab to lab
        assert capsule.run == each.run and capsule.spec == plan.spec_of(study, winner, study.seeds[0], scorers)
        assert capsule.rows[-1].step == capsule.spec.steps
        assert bool(capsule.manifest["left_out"]) != heavy, "light where it can be"
