"""The defaults of runs on pretrained weights, each with its source: TRL 1.16, another library or the paper.

The rows of the algorithms have the defaults of the built-in models, which learn from scratch in seconds: their learning
rates would destroy a pretrained model. Batches here are small enough for a CPU. A knob that no table below names keeps
the default of the row and the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.families.distillation import TEACHER, taught_by_itself
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.optimizer import LINEAR
from labcore.catalog.task import Task

SCRATCH, FULL, LORA = "", "full", "LoRA"  # how weights are learnt: from random ones, all of them, or by adapters
STEPS = 100  # for a first look; TRL's default is 3 epochs
LORA_TIMES = 10  # the rate of adapters over that of all weights
COMPLETIONS = 32  # of a step


@dataclass(frozen=True)
class Default:
    """A value, its source as a phrase, and the range that usually works, where that is another one too."""

    value: Value
    source: str
    safe: tuple[float, float] | None = None


Defaults = Mapping[str, Default]

_HERE = "chosen by this lab so that a step takes minutes on a CPU"
_MEASURED = "chosen by this lab, because sampling long completions is slow"
_GSPO = {"clip_low": Default(3e-4, "Zheng et al. 2025, arXiv:2507.18071", (1e-4, 1e-2)),
         "clip_high": Default(4e-4, "Zheng et al. 2025, arXiv:2507.18071", (1e-4, 1e-2))}


_LAST = {"PRMConfig": "1.13"}  # the last version with a configuration that 1.16 lacks


def _trl(config: str) -> str:
    return f"TRL {_LAST.get(config, '1.16')}'s {config}"


def _beta(value: float, source: str) -> Defaults:
    return {"beta": Default(value, source)}


# Which configuration of TRL an algorithm's learning rate is from: its own, else that of its loop.
_CONFIGS = {**dict.fromkeys(("opd", "minillm"), "DistillationConfig"), "gkd": "GKDConfig", "sdft": "SDFTConfig",
            "sdpo": "SDPOConfig", "rloo": "RLOOConfig",
            **dict.fromkeys(("online_dpo", "xpo", "nash_md"), "OnlineDPOConfig"), "kto": "KTOConfig",
            **dict.fromkeys(("simpo", "cpo", "alphapo"), "CPOConfig"), "orpo": "ORPOConfig",
            "tpo": "TPOConfig", "online": "GRPOConfig",
            "preference": "DPOConfig", "prm": "PRMConfig", "reward_model": "RewardConfig", "sft": "SFTConfig"}
_RATES = {"OnlineDPOConfig": 5e-7, "TPOConfig": 5e-7, "PRMConfig": 1e-5, "RewardConfig": 1e-4, "SFTConfig": 2e-5,
          "GKDConfig": 2e-5, "SDFTConfig": 5e-5, "SDPOConfig": 5e-5}  # of the others: 1e-6
_RATE = 1e-6

_OF_ALL: Defaults = {
    "schedule": Default(LINEAR, "TRL 1.16's configurations, which inherit it from transformers"),
    "teacher": Default("", "the built-in teacher has the vocabulary of the built-in models"),
    "sft_steps": Default(0, "pretrained weights need no SFT of a base"),
    "eval_prompts": Default(32, _MEASURED), "eval_every": Default(50, _MEASURED)}
_OF_LOOPS: Mapping[str, Defaults] = {
    "online": {"updates_per_batch": Default(1, _trl("GRPOConfig (num_iterations)")),
               "critic_learning_rate": Default(1e-5, "verl 0.9.1's critic.optim.lr", (1e-6, 1e-4))},
    "preference": {"beta": Default(0.1, _trl("DPOConfig"), (0.01, 1.0)),
                   "pairs_per_step": Default(8, _trl("DPOConfig (per_device_train_batch_size)")),
                   "pair_prompts": Default(64, _HERE), "group_size": Default(4, _HERE)},
    "prm": {"group_size": Default(4, _HERE), "eval_answers": Default(32, _MEASURED)},
    "reward_model": {"pairs_per_step": Default(8, _trl("RewardConfig (per_device_train_batch_size)")),
                     "pair_prompts": Default(64, _HERE), "group_size": Default(4, _HERE),
                     "eval_pairs": Default(64, _MEASURED)},
    "sft": {"sequences_per_step": Default(8, _trl("SFTConfig (per_device_train_batch_size)"))}}
_OPENRLHF = "OpenRLHF 0.11's --algo.kl.init_coef"
_OF_ROWS: Mapping[str, Defaults] = {
    "grpo": _beta(0.0, _trl("GRPOConfig; the paper has 0.04")), "rloo": _beta(0.05, _trl("RLOOConfig")),
    "ppo": {**_beta(0.05, "TRL's PPOConfig (kl_coef), before 1.13"),
            "updates_per_batch": Default(1, "verl 0.9.1's ppo_epochs"),
            "mini_batches": Default(4, "verl 0.9.1: batches of 1,024 prompts, mini-batches of 256")},
    **dict.fromkeys(("reinforce", "reinforce_average", "remax", "reinforce_pp", "reinforce_pp_baseline"),
                    _beta(0.01, _OPENRLHF)),
    **dict.fromkeys(("gspo", "gspo_token"), _GSPO),
    "online_dpo": {"group_size": Default(2, _trl("OnlineDPOTrainer, and the paper")),
                   "temperature": Default(0.9, _trl("OnlineDPOConfig"))},
    "simpo": _beta(2.0, "Meng et al. 2024, arXiv:2405.14734"), "cpo": _beta(0.1, _trl("CPOConfig")),
    "tpo": {"beta": Default(0.01, _trl("TPOConfig"), (0.005, 0.5))},
    "xpo": _beta(0.1, "TRL 1.9's XPOConfig"), "nash_md": _beta(0.1, "TRL 1.9's NashMDConfig"),
    "sdpo": {
        "reference_every": Default(1, _trl("SDPOConfig (teacher_sync_steps)")),
        "context_template": Default("{prompt}\\nCorrect solution:\\n\\n{context}\\n\\n\\n\\nCorrectly solve the "
                                    "original question.\\n", _trl("SDPOConfig")),
        "feedback_template": Default("{prompt}\\nThe following is feedback from your unsuccessful earlier attempt:"
                                     "\\n\\n{context}\\n\\n\\n\\nCorrectly solve the original question.\\n",
                                     _trl("SDPOConfig"))},
    "alphapo": _beta(2.5, "Gupta et al. 2025, arXiv:2501.03884"), "orpo": _beta(0.1, _trl("ORPOConfig"))}
_LENGTH = 256
_BUFFER = "a fifth of the length limit, as in Yu et al. 2025, arXiv:2503.14476"
_OF_FILES: Defaults = {
    "held_out_every": Default(0, _MEASURED),
    "max_new_tokens": Default(_LENGTH, "half of TRL 1.16's GRPOConfig, on a file of yours"),
    "overlong_buffer": Default(_LENGTH // 5, _BUFFER, (0, _LENGTH))}


def defaults(row: Algorithm, task: Task, weights: str) -> Defaults:
    """The defaults of `row` on `task` for such weights, by knob: only of knobs that they have, none for SCRATCH."""
    if weights == SCRATCH:
        return {}
    of_task = _OF_FILES if task.data in ("prompts", "preferences") else {}
    found = {**_OF_ALL, **_OF_LOOPS[row.loop], **_prompts(row), "learning_rate": _rate(row),
             **_OF_ROWS.get(row.key, {}), **of_task}
    if weights == LORA:
        found |= {key: _of_lora(found[key]) for key in ("learning_rate", "critic_learning_rate") if key in found}
        found |= {key: Default(0, "with LoRA the reference is the frozen base, which cannot follow")
                  for key in ("reference_every",) if any(knob.key == key and knob.default for knob in row.knobs)}
    known = {knob.key for knob in (*row.knobs, *task.knobs)} - ({TEACHER.key} if taught_by_itself(row) else set())
    return {key: default for key, default in found.items() if key in known}


def fitted(knobs: tuple[Knob, ...], found: Defaults) -> tuple[Knob, ...]:
    """`knobs` with these defaults."""
    return tuple(knob.with_default(found[knob.key].value, found[knob.key].source, found[knob.key].safe)
                 if knob.key in found else knob for knob in knobs)


def of_length(knobs: tuple[Knob, ...], values: Mapping[str, Value]) -> tuple[Knob, ...]:
    """`knobs` with the defaults that follow from the length limit that a run has by its `values`."""
    limit = int(values.get("max_new_tokens", 0))
    return tuple(knob.with_default(limit // 5, knob.source, (0, limit)) if limit and knob.source == _BUFFER else knob
                 for knob in knobs)


def _rate(row: Algorithm) -> Default:
    config = _CONFIGS.get(row.key, _CONFIGS[row.loop])
    rate = _RATES.get(config, _RATE)
    return Default(rate, _trl(config), (rate / 10, 10 * rate))


def _of_lora(full: Default) -> Default:
    rate = float(f"{LORA_TIMES * float(full.value):.6g}")
    return Default(rate, f"{LORA_TIMES} × {full.source}, as TRL's documentation advises for LoRA",
                   (rate / 10, 10 * rate))


def _prompts(row: Algorithm) -> Defaults:
    """As many prompts as make COMPLETIONS with the row's groups."""
    groups = [int(knob.default) for knob in row.knobs if knob.key == "group_size"]
    source = f"{COMPLETIONS} completions in a step: {_HERE}"
    return {"prompts_per_step": Default(COMPLETIONS // groups[0], source)} if groups else {}
