"""The callback sends what a trainer of TRL logs, continues a resumed run, and never disturbs the trainer."""

import math
import warnings

import pytest

from labcore.catalog.llm.models import MODELS
from labcore.catalog.metrics import METRICS
from labcore.llm.nets.model import build, save
from labcore.watch.trl import LabCallback, rollouts
from labcore.watch.trl.callback import SETTINGS, STATE
from labcore.watch.trl.given import LOSS
from tests.golden import trl_callback
from tests.watch.trl import fake
from tests.watch.trl.fake import FakeWatch, recorded
from tests.words import says

TRAINERS = [name for name in recorded() if name != "meta"]
QUIET = pytest.mark.filterwarnings("error")  # a fault of the callback is a warning


@pytest.fixture(autouse=True)
def lab(monkeypatch):
    fake.listened(monkeypatch)
    monkeypatch.setattr("labcore.watch.trl.given.REST", 0.0)  # how many steps are sent depends on no clock


def played(name: str, trainer_of=None, **given) -> tuple[fake.FakeTrainer, FakeWatch]:
    """The trainer after training, and what the lab was sent."""
    trainer = (trainer_of or getattr(fake, name))(LabCallback("mine", **given))
    trainer.play()
    return trainer, FakeWatch.made[-1]


@QUIET
@pytest.mark.parametrize("name", TRAINERS)
def test_one_row_for_each_step_with_the_numbers_of_its_evaluation(name):
    trainer, run = played(name)
    rows = {args[0]: args[1] for args, _ in run.of("log")}
    assert [args[0] for args, _ in run.of("log")] == [1, 2, 3, 4]
    logged = [event for event in trainer.events if event["event"] == "on_log" and "train_runtime" not in event["logs"]]
    assert len(logged) == 6
    for event in logged:
        sent = rows[event["step"]]
        numbers = [value for value in event["logs"].values() if isinstance(value, int | float)]
        assert set(numbers) <= set(sent.values()), f"a number of step {event['step']} is missing"
    assert any(key.startswith(("eval_", "held_out/")) for key in rows[2])
    assert not any(key.startswith(("eval_", "held_out/")) for key in rows[1])
    assert run.calls[-1] == ("finish", ("finished", ""), {})


@pytest.mark.parametrize("name, sent, unit", [
    ("GRPOTrainer", {"kl": "kl"}, "nats/token"), ("RLOOTrainer", {"kl": "kl/k1"}, "nats/token"),
    ("KTOTrainer", {"kl": "kl/mismatched"}, "nats/sequence"), ("SFTTrainer", {"eval_loss": "held_out/loss"},
                                                               "nats/token")])
def test_metrics_in_another_unit_have_another_name(name, sent, unit):
    trainer, run = played(name)
    [(theirs, ours)] = sent.items()
    [logged] = [event["logs"][theirs] for event in trainer.events if event["event"] == "on_log"
                and event["step"] == 2 and theirs in event["logs"]]
    row = next(args[1] for args, _ in run.of("log") if args[0] == 2)
    assert row[ours] == logged and METRICS[ours].unit == unit
    assert theirs == ours or theirs not in row


@pytest.mark.parametrize("name, config", [
    ("GRPOTrainer", {"beta": 0.1, "num_generations": 2, "epsilon": 0.2, "reward_weights": [1.0, 0.5], "max_steps": 4,
                     "reward_functions": ["rising", "scored_by_half"]}),
    ("DPOTrainer", {"beta": 0.1, "loss_type": ["sigmoid"]}), ("KTOTrainer", {"desirable_weight": 1.0}),
    ("SFTTrainer", {"learning_rate": 0.01, "lr_scheduler_type": "linear"})])
def test_settings_are_sent_under_trls_names(name, config):
    _, run = played(name, home="there")
    assert run.name == "mine" and run.given["tool"] == "TRL" and run.given["home"] == "there"
    assert run.given["config"].items() >= {**config, "algorithm": name, "model": "some/model"}.items()
    assert set(run.given["config"]) <= {*SETTINGS, "algorithm", "model", "reward_functions", "max_steps"}
    assert not run.of("config")


def test_a_changed_setting_is_sent_with_the_first_step_that_uses_it():
    trainer = fake.GRPOTrainer(LabCallback())
    place = next(at for at, event in enumerate(trainer.events) if event["event"] == "on_log" and event["step"] == 3)
    trainer.before_event[place] = lambda: setattr(trainer, "beta", 0.3)
    trainer.play()
    assert FakeWatch.made[-1].of("config") == [(({"beta": 0.3},), {"step": 4})]


def test_completion_tokens_are_counted_without_prompts():
    trainer, run = played("RLOOTrainer")
    made = [event for event in trainer.events if event["event"] == "generate" and event["mode"] == "train"]
    lengths = [sum(map(sum, event["output"]["completion_mask"])) for event in made]
    assert [given["tokens"] for _, given in run.of("log")] == [sum(lengths[:at]) for at in (1, 2, 3, 4)]
    for args, given in run.of("log"):
        assert args[1]["num_tokens"] == given["tokens"] < args[1]["num_tokens/with_prompts"]
    assert all(given["tokens"] is None for _, given in played("DPOTrainer")[1].of("log"))


def test_it_reports_whether_completions_are_sent():
    said = {name: [args[1] for args, _ in played(name)[1].of("event")] for name in TRAINERS}
    assert [says(each, "Metrics only", "SFTTrainer", "no completions") for each in said["SFTTrainer"]] == [True]
    assert {name for name, texts in said.items() if texts[0].startswith("Sent with each")} == {
        "GRPOTrainer", "RLOOTrainer"}
    assert {name for name, texts in said.items() if texts[0].startswith("Sent with a step: prompts and completions")
            } == {"DPOTrainer", "KTOTrainer"}


def test_a_resumed_training_continues_its_run():
    first = fake.RLOOTrainer(LabCallback())
    first.play()
    kept = first.state.stateful_callbacks[STATE]
    assert kept["run"] == FakeWatch.made[-1].id and kept["tokens"] > 0 and kept["seconds"] > 0
    second = fake.RLOOTrainer(LabCallback())
    second.state.stateful_callbacks[STATE] = {**kept, "seconds": 500.0}
    second.play()
    run = FakeWatch.made[-1]
    assert run.given["run_id"] == kept["run"] and FakeWatch.made[0].given["run_id"] is None
    assert [given["tokens"] for _, given in run.of("log")][-1] == 2 * kept["tokens"]
    assert all(given["seconds"] >= 500 for _, given in run.of("log"))


def test_a_second_training_from_the_start_is_another_run():
    trainer = fake.DPOTrainer(LabCallback())
    trainer.play()
    trainer.state.stateful_callbacks = {}
    trainer.play()
    first, second = FakeWatch.made
    assert first.id != second.id and len(second.of("log")) == 4


@pytest.mark.parametrize("error, state, message", [
    (RuntimeError("CUDA out of memory"), "failed", "RuntimeError: CUDA out of memory"),
    (KeyboardInterrupt(), "stopped", "Interrupted from the keyboard.")])
def test_an_exception_in_the_training_ends_the_run_and_is_raised_again(error, state, message):
    trainer = fake.GRPOTrainer(LabCallback())
    original = type(trainer).training_step

    def fails(call, *args):
        if trainer.state.global_step >= 1 or args:
            raise error
        return original(trainer, call, *args)

    trainer.training_step = fails
    with pytest.raises(type(error)):
        trainer.play()
    assert FakeWatch.made[-1].of("finish") == [((state, message), {})]
    assert trainer.training_step is fails, "the trainer's own method is back"


@pytest.mark.parametrize("name", TRAINERS)
def test_the_trainer_is_restored(name):
    before = {*vars(getattr(fake, name)())} | {"_step"}
    trainer, _ = played(name)
    assert {*vars(trainer)} <= before


def test_an_error_in_the_callback_is_reported_once_and_stops_nothing(monkeypatch):
    def broken(*args, **given):
        raise ValueError("a shape that nobody expected")

    callback = LabCallback()
    trainer = fake.GRPOTrainer(callback)
    monkeypatch.setattr(callback, "_named", broken)
    with pytest.warns(UserWarning, match="failed in on_log.*a shape that nobody expected") as said:
        trainer.play()
    assert len(said) == 1
    run = FakeWatch.made[-1]
    assert len([args for args, _ in run.of("event") if "a shape that nobody expected" in args[1]]) == 1
    assert run.of("rollouts") and run.calls[-1][0] == "finish", "the rest is still sent"


def test_events_of_later_versions_are_ignored():
    callback = LabCallback()
    assert callback.on_an_event_of_transformers_6(None, None, None, model=None) is None
    with pytest.raises(AttributeError):
        callback.anything_else()


def test_only_the_first_process_sends():
    trainer = fake.GRPOTrainer(LabCallback())
    trainer.state.is_world_process_zero = False
    trainer.play()
    assert FakeWatch.made == []


@pytest.mark.parametrize("stop, steps", [(False, [1, 2, 3, 4]), (True, [1, 2])])
def test_the_lab_can_stop_a_training_only_if_this_is_switched_on(stop, steps):
    trainer = fake.SFTTrainer(LabCallback(stop=stop))
    place = next(at for at, event in enumerate(trainer.events) if event["event"] == "on_step_begin"
                 and event["step"] == 2)
    trainer.before_event[place] = lambda: FakeWatch.made[-1].asks.update(stop=True, why="the reward is hacked")
    trainer.play()
    run = FakeWatch.made[-1]
    assert [args[0] for args, _ in run.of("log")] == steps
    assert run.of("finish") == [((("stopped", "The lab asked the run to stop: the reward is hacked"), {}) if stop
                                 else (("finished", ""), {}))]


def test_without_its_trainer_it_sends_metrics():
    callback = LabCallback()
    trainer = fake.GRPOTrainer(callback)
    trainer.callback_handler = None  # so that nothing in the stack is known to call it
    for event in trainer.events:
        if event["event"].startswith("on_"):
            given = {"logs": event["logs"]} if "logs" in event else {}
            trainer.state.global_step, trainer.control.should_evaluate = event["step"], event["evaluates"]
            getattr(callback, event["event"])(trainer.args, trainer.state, trainer.control, **given)
    run = FakeWatch.made[-1]
    assert len(run.of("log")) == 4 and not run.of("rollouts")
    assert "did not find its trainer" in run.of("event")[0][0][1]


def test_missing_numbers_are_not_sent():
    callback = LabCallback()
    trainer = fake.SFTTrainer(callback)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.play()
        callback.on_train_begin(trainer.args, trainer.state, trainer.control)
        trainer.control.should_evaluate = False
        callback.on_log(trainer.args, trainer.state, trainer.control,
                        logs={"loss": 1, "rewards/f/mean": None, "kl": math.inf, "note": "text"})
    assert FakeWatch.made[-1].of("log")[-1][0][1] == {"loss": 1.0, "kl": math.inf}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_real_trainer_sends_the_recorded_data(name, monkeypatch, tmp_path):
    """Where TRL is installed: in the names that the callback reads nothing has changed since the recording."""
    trl = pytest.importorskip("trl")
    if trl.__version__ != recorded()["meta"]["trl"]:
        pytest.skip(f"recorded with TRL {recorded()['meta']['trl']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    save(build(MODELS["tiny"], fake.tokenizer(), 0), fake.tokenizer(), tmp_path / "model")
    trainer = trl_callback.trainers(str(tmp_path / "model"), str(tmp_path / "out"))[name]()
    trainer.add_callback(LabCallback("real"))
    trainer.train()
    real = FakeWatch.made[-1]
    _, copy = played(name)
    assert [kind for kind, *_ in real.calls] == [kind for kind, *_ in copy.calls]
    for (_, args, given), (_, others, theirs) in zip(real.calls, copy.calls, strict=True):
        assert args[0] == others[0] and given.keys() == theirs.keys()
        if len(args) > 1 and isinstance(args[1], dict):
            assert args[1].keys() == others[1].keys()
    assert {*vars(trainer)}.isdisjoint({"training_step", "evaluate", LOSS, *rollouts.WATCHED})
