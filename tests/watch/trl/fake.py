"""Trainers that give a callback what those of TRL gave one in `tests/golden/trl_callback.json`, and a lab that listens.

A stand-in has the attributes of a trainer that the callback reads, under TRL's names, and calls the callback and its
own methods in the recorded order.
"""

from __future__ import annotations

import json
from collections import defaultdict
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.watch.trl import LabCallback, callback

RECORDED = Path(__file__).parents[2] / "golden" / "trl_callback.json"


@cache
def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text("utf-8"), parse_constant=str)


@cache
def tokenizer() -> Any:
    return character_tokenizer("abcdefghijklmnopqrstuvwxyz=")


class FakeWatch:
    """The lab's client as far as the callback calls it: keeps each call with its arguments."""

    made: ClassVar[list[FakeWatch]] = []

    def __init__(self, name: str, **given: Any) -> None:
        self.name, self.given, self.calls = name, given, []
        self.id = given.get("run_id") or f"run-{len(self.made)}"
        self.asks: dict[str, Any] = {}
        self.made.append(self)

    def __getattr__(self, kind: str) -> Any:
        if kind not in ("log", "rollouts", "config", "event", "finish"):
            raise AttributeError(kind)
        return lambda *args, **given: self.calls.append((kind, args, given))

    def asked(self) -> dict[str, Any]:
        return self.asks

    def of(self, kind: str) -> list[tuple[tuple, dict[str, Any]]]:
        """The arguments of the calls of one kind."""
        return [(args, given) for each, args, given in self.calls if each == kind]


class FakeTrainer:
    """The trainer of a recording; `play` trains. Subclasses below have the names of TRL's classes."""

    def __init__(self, *callbacks: LabCallback, **changed: Any) -> None:
        made = recorded()[type(self).__name__]
        self.events, own = deepcopy(made["events"]), made["own"]
        self.args = SimpleNamespace(**{"output_dir": "out/trained", "run_name": None, "world_size": 1, "max_steps": 4,
                                       **made["settings"], **changed})
        self.callback_handler = SimpleNamespace(callbacks=[*callbacks])
        self.model = SimpleNamespace(training=True, config=SimpleNamespace(_name_or_path="some/model"))
        self.processing_class = tokenizer()
        self.state = SimpleNamespace(global_step=0, max_steps=4, is_world_process_zero=True, stateful_callbacks={})
        self.control = SimpleNamespace(should_evaluate=False, should_training_stop=False)
        self.before_event: dict[int, Any] = {}  # what happens before the event of this place
        vars(self).update(own)

    def play(self) -> None:
        """Train: every recorded event, until the callback asks to stop."""
        for place, event in enumerate(self.events):
            self.before_event.get(place, lambda: None)()
            self._happens(event)
            if self.control.should_training_stop and event["event"] == "on_step_end":
                self._tell("on_train_end")
                break

    def _happens(self, event: dict[str, Any]) -> None:
        if event["event"] == "generate":
            self.model.training = event["mode"] == "train"
            self.training_step(self._generate_and_score_completions, [{}] * event["rows"], event)
        elif event["event"] == "score":
            self.model.training = event["training"]
            _score(self, event)
        elif event["event"] == "loss":
            self.model.training = event["training"]
            self.compute_loss(self.model, {key: torch.tensor(value) for key, value in event["inputs"].items()}, event)
        else:
            self.state.global_step, self._step = event["step"], event["at"]
            self.control.should_evaluate = event["evaluates"]
            self._tell(event["event"], **({"logs": _numbers(event["logs"])} if "logs" in event else {}))

    def _tell(self, name: str, **given: Any) -> None:
        for each in self.callback_handler.callbacks:
            getattr(each, name)(self.args, self.state, self.control, model=self.model, **given)

    def training_step(self, call: Any, *args: Any) -> Any:
        return call(*args)

    def evaluate(self) -> None:
        raise NotImplementedError


class _Sampling(FakeTrainer):
    def __init__(self, *callbacks: LabCallback, **changed: Any) -> None:
        super().__init__(*callbacks, **changed)
        self._logs = {"prompt": [], "completion": [], "rewards": {}, "advantages": []}
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
        self.accelerator = SimpleNamespace(num_processes=1)
        self.reward_weights = torch.tensor(getattr(self.args, "reward_weights", None) or [1.0])

    def _generate_and_score_completions(self, inputs: Any, event: dict[str, Any]) -> dict[str, Any]:
        for each in event["scores"]:
            _score(self, each)
        self._logs = _numbers(event["logs"])
        self._metrics[event["mode"]]["completions/mean_length"].append(event["mean_length"])
        return {key: torch.tensor(_numbers(value)) for key, value in event["output"].items()}

    def _get_per_token_logps_and_entropies(self, model: Any, ids: Any, returned: Any, compute_entropy: bool = False,
                                           ) -> Any:
        return tuple(None if each is None else torch.tensor(each) for each in (*returned, None))


class GRPOTrainer(_Sampling):
    pass


class RLOOTrainer(_Sampling):
    pass


class _Model(torch.nn.Module):
    """A model that returns what the recorded pass did."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.config = config

    def forward(self, input_ids: Any, found: dict[str, Any]) -> Any:
        return SimpleNamespace(log_probs=torch.tensor(found["log_probs"], requires_grad=found["learns"]),
                               entropy=torch.tensor(found["entropy"] or []))


class _Preferring(FakeTrainer):
    def __init__(self, *callbacks: LabCallback, **changed: Any) -> None:
        super().__init__(*callbacks, **changed)
        self.model, self.ref_model = _Model(self.model.config), _Model()

    def compute_loss(self, model: Any, inputs: dict[str, Any], event: dict[str, Any]) -> None:
        for each in event["passes"]:
            getattr(self, each["of"])(input_ids=inputs[each["ids"]], found=each)


class DPOTrainer(_Preferring):
    pass


class KTOTrainer(_Preferring):
    pass


class SFTTrainer(FakeTrainer):
    pass


class RewardTrainer(FakeTrainer):
    pass


def _score(trainer: Any, event: dict[str, Any]) -> None:
    trainer._step = event["at"]
    asked = {"compute_entropy": True} if event["compute_entropy"] else {}
    trainer._get_per_token_logps_and_entropies(trainer.model, torch.tensor(event["ids"]), event["returned"], **asked)


def _numbers(value: Any) -> Any:
    """JSON with its NaN as numbers again."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return float("nan") if value == "NaN" else value


def listened(monkeypatch: Any) -> None:
    """Let the callback send to `FakeWatch`."""
    FakeWatch.made = []
    monkeypatch.setattr(callback, "Watch", FakeWatch)
