"""A trained reward model as a folder, in the checkpoints of the run that trained it and of the runs that use it.

A run with rewards from a reward model saves this model in each of its checkpoints, so that it can be resumed, forked
and repeated elsewhere even if the run that trained the model has been deleted.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase

from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts
from labcore.llm.nets import lora
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.folder import check_size, config_of
from labcore.llm.nets.forward import completion_outputs, precision
from labcore.llm.nets.micro_batches import WHOLE, Room, micro_batches
from labcore.llm.nets.model import load
from labcore.llm.nets.tokenizer import load_tokenizer
from labcore.maths.turns import extents
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.files.untrusted import json_of
from labcore.runs.spec.model_names import PROCESS_WEIGHTS, REWARD_WEIGHTS

# ---------------------------------------------------------------- scoring
# The score that a reward model gives a completion: its value at the last token, the end token included.


def last_values(model: Critic, prompts: Prompts, ids: Tensor, mask: Tensor, dtype: str) -> Tensor:
    """The value after the last token that counts, with its gradient. ids and mask (B, T) -> (B,) reward"""
    with precision(model, dtype):
        # An output predicts the next token, so a token is appended, which the value after the last one predicts.
        outputs = completion_outputs(model, prompts, pad(ids, (0, 1)), extents=extents(mask) + 1, at_end=True)
    return outputs[:, 0, 0].float()


@torch.no_grad()
def scores(model: Critic, prompts: Prompts, completions: Completions, dtype: str, room: Room = WHOLE) -> Tensor:
    """The scores of B completions, of any number of prompts. (B,) reward"""
    return torch.cat([last_values(model, prompts[some], completions.ids[rows], completions.mask[rows], dtype)
                      for some, rows in micro_batches(model, prompts, completions.ids, room)])


# ---------------------------------------------------------------- scorer

CONFIG = "policy"  # as in the checkpoints of the run that trained it
STATE = "state.json"
SEPARATOR = "step_separator"  # in the configuration of one that scores steps: the knob with which it was trained


def scores_steps(scorer: nn.Module) -> bool:
    """True if a reward model scores the steps of an answer, not the answer as a whole."""
    return isinstance(scorer, Critic) and scorer.head.out_features == 2


def load_scorer(folder: Path, name: str) -> Critic:
    """Load the reward model of a checkpoint, frozen, on the CPU. `name` is its name in error texts. The configuration
    of a model that scores steps has the separator of steps.

    Raises:
        LabError: it cannot be read.
    """
    try:
        of_steps = (folder / PROCESS_WEIGHTS).is_file()
        weights = load_file(folder / (PROCESS_WEIGHTS if of_steps else REWARD_WEIGHTS))
        outputs = 2 if of_steps else 1
        if is_adapter(folder / CONFIG):
            scorer = _adapted(folder / CONFIG, weights, outputs)
        else:
            config = AutoConfig.from_pretrained(folder / CONFIG, trust_remote_code=False, local_files_only=True)
            check_size(folder / CONFIG, config_of(folder / CONFIG))
            scorer = Critic(AutoModelForCausalLM.from_config(config, trust_remote_code=False), outputs)
            scorer.load_state_dict(weights)
        if of_steps and not hasattr(scorer.config, SEPARATOR):
            state = json_of((folder / STATE).read_bytes(), constants=True)
            setattr(scorer.config, SEPARATOR, str(state["knobs"][SEPARATOR]))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RuntimeError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
        raise LabError(f"The reward model {name} cannot be read ({reason}): train it again.") from error
    return scorer.eval().requires_grad_(False)


def _adapted(folder: Path, weights: dict[str, Tensor], outputs: int) -> Critic:
    """The reward model that LoRA has trained: its adapter, merged into the base that the policy in `folder` names."""
    scorer = Critic(load(base_of(folder))[0], outputs)
    lora.wear(scorer, folder)
    lora.put(scorer, weights)
    lora.merge(scorer)
    return scorer


def save_scorer(scorer: Critic, folder: Path) -> None:
    """Save a reward model in the format that `load_scorer` reads."""
    scorer.config.save_pretrained(folder / CONFIG)
    weights = {key: value.detach().cpu().contiguous() for key, value in scorer.state_dict().items()}
    save_file(weights, folder / (PROCESS_WEIGHTS if scores_steps(scorer) else REWARD_WEIGHTS))


def check_tokenizer(folder: Path, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that the reward model in a run's checkpoint reads the tokens that a policy writes.

    Raises:
        LabError: it has another tokenizer.
    """
    theirs, ours = load_tokenizer(folder / CONFIG).get_vocab(), tokenizer.get_vocab()
    if theirs != ours:
        known = theirs.keys() | ours.keys()
        other = sum(theirs.get(token) != ours.get(token) for token in known)
        raise LabError(f"The reward model {name} has another tokenizer than the policy ({other:,} of {len(known):,} "
                       "tokens differ): train a reward model on the policy's model and task.")
