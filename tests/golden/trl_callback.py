"""Makes `trl_callback.json`: what trainers of TRL give a callback, in its order, in four steps of a tiny model.

Run it where TRL is installed beside the lab (`pip install trl==1.16.0`):

    python -m tests.golden.trl_callback

Each trainer has its settings, the events of its callbacks, and of those that sample what two of their methods get and
return: the completions of a generation with TRL's own log of it, and each pass of the model for log-probs. Of those
that learn preferences it has the batches of the loss, and each pass of a model in it.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

EVENTS = ("on_train_begin", "on_step_begin", "on_substep_end", "on_step_end", "on_log", "on_evaluate", "on_train_end")
TARGET = Path(__file__).with_name("trl_callback.json")
ASKED = [f"{letter}a=" for letter in "bcdefghi"]
PAIRS = [{"prompt": each, "chosen": f"a{each[0]}", "rejected": f"{each[0]}a"} for each in ASKED]
COMMON = {"max_steps": 4, "logging_steps": 1, "report_to": "none", "save_strategy": "no", "use_cpu": True,
          "bf16": False, "disable_tqdm": True, "per_device_train_batch_size": 2, "per_device_eval_batch_size": 4,
          "eval_strategy": "steps", "eval_steps": 2, "seed": 1, "learning_rate": 1e-2, "gradient_checkpointing": False}
SAMPLED = {"num_generations": 2, "max_completion_length": 4, "beta": 0.1}


def rising(completions: list, **_: Any) -> list[float]:
    """The share of neighbouring letters that are in order."""
    return [sum(a <= b for a, b in pairwise(text)) / 3 for text in map(_text, completions)]


def scored_by_half(completions: list, **_: Any) -> list[float | None]:
    """1 for a completion with an "a", and no score where it begins in the second half of the alphabet."""
    return [None if _text(each)[:1] > "m" else float("a" in _text(each)) for each in completions]


def _text(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def trainers(folder: str, out: str) -> dict[str, Any]:
    """A trainer of each kind by the name of its class, to be called."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = Dataset.from_list([{"prompt": each} for each in ASKED])
    pairs, singles = Dataset.from_list(PAIRS), Dataset.from_list([
        {"prompt": row["prompt"], "completion": row["chosen"], "label": at % 2 == 0} for at, row in enumerate(PAIRS)])

    def made(name: str, model: Any, data: Any, settings: dict[str, Any], **given: Any) -> Any:
        config = getattr(trl, f"{name}Config")(output_dir=out, **COMMON | settings)
        return getattr(trl, f"{name}Trainer")(model, args=config, train_dataset=data, eval_dataset=data,
                                              processing_class=tokenizer, **given)

    def scorer() -> Any:
        return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1,
                                                                  pad_token_id=tokenizer.pad_token_id)
    return {
        "GRPOTrainer": lambda: made("GRPO", folder, asked, SAMPLED | {
            "gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2,
            "reward_weights": [1.0, 0.5]}, reward_funcs=[rising, scored_by_half]),
        "RLOOTrainer": lambda: made("RLOO", folder, asked, SAMPLED, reward_funcs=[rising]),
        "DPOTrainer": lambda: made("DPO", folder, pairs, {}),
        "KTOTrainer": lambda: made("KTO", folder, singles, {}),
        "SFTTrainer": lambda: made("SFT", folder, singles.remove_columns("label"), {}),
        "RewardTrainer": lambda: made("Reward", scorer(), pairs, {})}


class Recorder:
    """A callback that records its events and, for a trainer that samples, the return values of its methods."""

    def __init__(self, trainer: Any):
        self.trainer, self.events, self.scores = trainer, [], []
        if hasattr(trainer, "_generate_and_score_completions"):
            self._generate, self._score = (trainer._generate_and_score_completions,
                                           trainer._get_per_token_logps_and_entropies)
            trainer._generate_and_score_completions, trainer._get_per_token_logps_and_entropies = (
                self.generate, self.score)
        if hasattr(trainer, "ref_model"):
            self._loss, trainer.compute_loss = trainer.compute_loss, self.loss
            for name in ("model", "ref_model"):
                getattr(trainer, name).register_forward_hook(partial(self.passed, name), with_kwargs=True)

    def loss(self, model: Any, inputs: Any, *args: Any, **given: Any) -> Any:
        self.inputs, self.passes = inputs, []
        self.events.append({"event": "loss", "training": model.training, "passes": self.passes,
                            "inputs": {key: _plain(value) for key, value in inputs.items()}})
        return self._loss(model, inputs, *args, **given)

    def passed(self, name: str, module: Any, args: Any, given: Any, output: Any) -> None:
        ids = next(key for key, value in self.inputs.items() if value is given["input_ids"])
        self.passes.append({"of": name, "ids": ids, "learns": output.log_probs.requires_grad,
                            "log_probs": _plain(output.log_probs), "entropy": _plain(output.entropy)})

    def generate(self, inputs: Any) -> Any:
        self.scores = []
        output = self._generate(inputs)
        logs, trainer = self.trainer._logs, self.trainer
        mode = "train" if trainer.model.training else "eval"
        self.events.append({"event": "generate", "rows": len(inputs), "mode": mode, "scores": self.scores,
                            "output": {key: _plain(value) for key, value in output.items()},
                            "logs": {"prompt": list(logs["prompt"]), "completion": list(logs["completion"]),
                                     "rewards": {name: _plain(list(each)) for name, each in logs["rewards"].items()},
                                     "advantages": _plain(list(logs["advantages"]))},
                            "mean_length": trainer._metrics[mode]["completions/mean_length"][-1]})
        self.scores = self.events
        return output

    def score(self, model: Any, ids: Any, *args: Any, **given: Any) -> Any:
        output = self._score(model, ids, *args, **given)
        self.scores.append({"event": "score", "compute_entropy": bool(given.get("compute_entropy")),
                            "training": self.trainer.model.training, "at": self.trainer._step, "ids": _plain(ids),
                            "returned": [_plain(each) for each in output[:2]]})
        return output

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)

        def heard(args: Any, state: Any, control: Any, **given: Any) -> None:
            if name in EVENTS:
                self.events.append({"event": name, "step": state.global_step, "evaluates": control.should_evaluate,
                                    "at": getattr(self.trainer, "_step", 0),
                                    **({"logs": _plain(given["logs"])} if "logs" in given else {})})
        return heard


def _plain(value: Any) -> Any:
    """Tensors as lists, with the digits that matter; NaN as text."""
    if hasattr(value, "detach"):
        return _plain(value.detach().tolist())
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return ("NaN" if value != value else float(f"{value:.7g}")) if isinstance(value, float) else value


def recorded(trainer: Any) -> dict[str, Any]:
    """What a trainer gives in its four steps."""
    from labcore.watch.trl.callback import SETTINGS

    recorder = Recorder(trainer)
    trainer.add_callback(recorder)
    trainer.train()
    settings = {name: getattr(value, "value", value) for name in SETTINGS
                if (value := getattr(trainer.args, name, None)) is not None}
    own = {name: getattr(trainer, name) for name in ("num_generations", "num_iterations", "reward_func_names", "beta",
                                                     "epsilon_low", "epsilon_high") if hasattr(trainer, name)}
    return {"settings": _plain(settings), "own": own, "events": recorder.events}


def main() -> None:
    """Write the file."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch
    import transformers
    import trl

    from labcore.catalog.llm.models import MODELS
    from labcore.llm.nets.model import build, save
    from labcore.llm.nets.tokenizer import character_tokenizer

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out:
        tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz=")
        save(build(MODELS["tiny"], tokenizer, 0), tokenizer, folder := Path(out) / "model")
        made = {name: recorded(make()) for name, make in trainers(str(folder), out).items()}
    versions = {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    TARGET.write_text(json.dumps({"meta": versions, **made}, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
