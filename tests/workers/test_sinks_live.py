"""Metrics go live to TensorBoard, W&B and Trackio, continue after a resume, and never stop a run."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.files.paths import run_folder
from labcore.runs.store.store import Store
from labcore.workers import sinks
from labcore.workers.sinks import config
from labcore.workers.worker import drive
from tests.exports.test_folder_tensorboard import events_in
from tests.runs import fake
from tests.words import says
from tests.workers.stand_ins import install

SERVICES = ("wandb", "trackio")


def started(store: Store, steps: int, *names: str) -> str:
    run_id = store.create(fake.grpo(steps))
    sinks.ask(store, run_id, names)
    return run_id


def stopped_at(store: Store, run_id: str, step: int) -> None:
    """Drive a run until `step`, where somebody stops it."""
    def stop(_, record, seconds):
        if record.step == step:
            store.ask(run_id, "stop")
    assert drive(store, run_id, on_record=stop, start=fake.start) == "stopped"


def resumed(store: Store, run_id: str) -> None:
    store.requeue(run_id)
    assert drive(store, run_id, start=fake.start) == "finished"


def notes(store: Store, run_id: str) -> list[str]:
    return [event.payload["text"] for event in store.events_after(run_id) if event.kind == "note"]


def single_precision(metrics: dict) -> dict:
    return {key: float(np.float32(value)) for key, value in metrics.items()}


def test_tensorboard_grows_with_the_run_and_a_resume_goes_on_behind_it(store):
    run_id = started(store, 6, "tensorboard")
    folder, seen = run_folder(run_id) / "tensorboard", []

    def look(_, record, seconds):
        [path] = folder.iterdir()
        seen.append(len(events_in(path)) - 1)
        if record.step == 4:
            store.ask(run_id, "stop")
    drive(store, run_id, on_record=look, start=fake.start)
    assert seen == [1, 2, 3, 4], "each step is there as soon as it is committed"
    resumed(store, run_id)
    files = sorted(folder.iterdir(), key=lambda path: events_in(path)[1].step)
    found = [event for path in files for event in events_in(path)[1:]]
    assert len(files) == 2 and all("tfevents" in path.name for path in files)
    assert [event.step for event in found] == [1, 2, 3, 4, 5, 6]
    for event, row in zip(found, store.steps_after(run_id), strict=True):
        assert {value.tag: value.simple_value for value in event.summary.value} == single_precision(row.metrics)
    assert [says(note, f"tensorboard --logdir {folder}") for note in notes(store, run_id)] == [True] * 2


@pytest.mark.parametrize("name", SERVICES)
def test_a_tracker_gets_every_step_once_under_one_run(name, monkeypatch):
    service, store = install(monkeypatch, name), Store()
    run_id = started(store, 6, name)
    stopped_at(store, run_id, 3)
    resumed(store, run_id)
    [(place, tracked)] = service.runs.items()
    assert place == ("rl-visual-lab", f"{run_id}-{int(store.run(run_id).created)}")
    assert tracked.rows == [(row.step, row.metrics) for row in store.steps_after(run_id)]
    assert tracked.finished == 2
    assert tracked.config.items() >= {"algorithm": "grpo", "task": "sort", "steps": 6, "beta": 0.04}.items()
    assert not [value for value in tracked.config.values() if isinstance(value, str) and value.startswith("/")]


def test_a_crash_between_checkpoints_sends_no_step_twice(monkeypatch):
    """The steps after the last checkpoint are made again, and are the same."""
    service, store = install(monkeypatch, "wandb"), Store()
    run_id = started(store, 8, "wandb")
    monkeypatch.setattr(fake.FakeSession, "break_at", {5: RuntimeError("broken")})
    assert drive(store, run_id, start=fake.start) == "failed"
    monkeypatch.setattr(fake.FakeSession, "break_at", {})
    resumed(store, run_id)
    [tracked] = service.runs.values()
    assert tracked.rows == [(row.step, row.metrics) for row in store.steps_after(run_id)]
    assert [step for step, _ in tracked.rows] == [*range(1, 9)]


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("end", ["finished", "failed"])
def test_a_tracker_that_takes_its_time_at_the_end_does_not_keep_the_end_from_being_said(name, end, monkeypatch):
    service, store, seen = install(monkeypatch, name), Store(), []
    if end == "failed":
        monkeypatch.setattr(fake.FakeSession, "break_at", {3: RuntimeError("broken")})
    run_id = started(store, 4, name)

    def slow() -> None:
        seen.append(store.run(run_id).state)
        raise RuntimeError("The network is down.")
    service.at_finish = slow
    assert drive(store, run_id, start=fake.start) == end and seen == [end]
    assert "stopped (the network is down)" in notes(store, run_id)[-1], "said though the run has ended"
    [tracked] = service.runs.values()
    assert tracked.exit_code == ({"finished": 0, "failed": 1}[end] if name == "wandb" else None)


@pytest.mark.parametrize("name, label", [("wandb", "W&B"), ("trackio", "Trackio")])
def test_one_that_fails_is_said_once_and_the_run_and_the_others_go_on(name, label, monkeypatch):
    service, store = install(monkeypatch, name), Store()
    service.breaks_at = 3
    run_id = started(store, 6, name, "tensorboard")
    assert drive(store, run_id, start=fake.start) == "finished"
    said = [each for each in notes(store, run_id) if "stopped" in each]
    assert [says(each, label, "stopped", "the network is down", "run continues") for each in said] == [True]
    [event] = [event for event in store.events_after(run_id) if event.payload.get("text") == said[0]]
    assert event.step == 3
    [tracked] = service.runs.values()
    assert [step for step, _ in tracked.rows] == [1, 2]
    [path] = (run_folder(run_id) / "tensorboard").iterdir()
    assert len(events_in(path)) == 7 and store.run(run_id).step == 6


def test_one_that_cannot_be_opened_is_said_and_tried_again_at_a_resume(monkeypatch):
    service, store = install(monkeypatch, "wandb"), Store()
    service.refuses = "No API key configured. Use `wandb login` to log in."
    run_id = started(store, 4, "wandb")
    stopped_at(store, run_id, 2)
    assert ["No API key" in each or "no API key" in each for each in notes(store, run_id)] == [True]
    service.refuses = ""
    resumed(store, run_id)
    [tracked] = service.runs.values()
    assert [step for step, _ in tracked.rows] == [3, 4]


@pytest.mark.parametrize("name", SERVICES)
def test_a_missing_package_is_one_sentence_before_the_run_begins(name, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    sentence = f"{{}} {name} needs the package {name}: install it with pip install {name}, or leave {name} out."
    with pytest.raises(LabError) as error:
        sinks.checked([name])
    assert str(error.value) == sentence.format("--log")
    assert main(["run", "--algorithm", "grpo", "--task", "sort", "--steps", "1", "--log", name]) == 1
    assert sentence.format("--log") in capsys.readouterr().err and not Store().runs()
    monkeypatch.setenv(sinks.SETTING, name)
    store = Store()
    run_id = store.create(fake.grpo(3))
    assert drive(store, run_id, start=fake.start) == "failed"
    assert sentence.format("RL_LAB_LOG") in store.run(run_id).message and store.run(run_id).step == 0


def test_a_run_that_asked_earlier_goes_on_where_the_package_is_gone(monkeypatch, store):
    """Another machine may resume it."""
    with monkeypatch.context() as patch:
        install(patch, "wandb")
        run_id = started(store, 4, "wandb")
        stopped_at(store, run_id, 2)
    monkeypatch.setitem(sys.modules, "wandb", None)
    resumed(store, run_id)
    assert "pip install wandb" in notes(store, run_id)[-1] and store.run(run_id).step == 4


def test_the_setting_counts_for_every_run_and_is_remembered(monkeypatch):
    service, store = install(monkeypatch, "trackio"), Store()
    monkeypatch.setenv(sinks.SETTING, " trackio, tensorboard ")
    run_id = store.create(fake.grpo(4))
    stopped_at(store, run_id, 2)
    assert sinks.asked(store, run_id) == ["trackio", "tensorboard"]
    monkeypatch.delenv(sinks.SETTING)
    resumed(store, run_id)
    [tracked] = service.runs.values()
    assert [step for step, _ in tracked.rows] == [1, 2, 3, 4]
    assert len([event for event in store.events_after(run_id) if event.kind == sinks.ASKED]) == 2, "each once"


@pytest.mark.parametrize("setting, words", [("tensorbord", "did you mean 'tensorboard'?"),
                                            ("x y", "RL_LAB_LOG cannot be 'x'")])
def test_a_setting_that_names_nothing_is_one_sentence(setting, words, monkeypatch):
    monkeypatch.setenv(sinks.SETTING, setting)
    with pytest.raises(LabError, match=words.replace("?", r"\?")):
        sinks.of_setting()


def test_a_run_that_asks_for_nothing_writes_nothing_more(store):
    run_id = store.create(fake.grpo(3))
    drive(store, run_id, start=fake.start)
    assert not (run_folder(run_id) / "tensorboard").exists() and not notes(store, run_id)


def test_the_commands_ask_and_a_live_run_is_told_that_it_is_too_late(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("labcore.cli.commands.train", lambda store, run_id, *_: asked.append(
        sinks.asked(store, run_id)) or 0)
    monkeypatch.setattr("labcore.cli.forks.train", lambda store, run_id, *_: asked.append(
        sinks.asked(store, run_id)) or 0)
    assert main(["run", "--algorithm", "grpo", "--task", "sort", "--log", "tensorboard"]) == 0
    store = Store()
    run_id = started(store, 4)
    stopped_at(store, run_id, 2)
    assert main(["resume", run_id, "--log", "tensorboard"]) == 0
    assert main(["fork", run_id, "--log", "tensorboard"]) == 0
    assert asked == [["tensorboard"]] * 3
    assert main(["resume", run_id, "--log", "tensorboard"]) == 1
    assert "--log takes effect when a run starts" in capsys.readouterr().err


def test_no_tracker_hears_of_a_path_of_this_machine_or_of_the_judges_address(monkeypatch):
    spec = fake.grpo(1)
    spec = replace(spec, model="/home/me/models/qwen", knobs=spec.knobs | {
        "reward_source": "reward_model", "reward_model": "/home/me/models/judge", "system_prompt": "/no_think",
        "judge_url": "https://me:secret@10.0.0.7/v1?key=secret", "judge_model": "qwen"})
    run = replace(Store().run(Store().create(fake.grpo(1))), spec=spec)
    told = config(run)
    assert (told["model"], told["reward_model"], told["system_prompt"]) == ("qwen", "judge", "/no_think")
    assert not [word for word in ("/home", "secret", "10.0.0.7") if word in str(told)] and told["judge_model"] == "qwen"
