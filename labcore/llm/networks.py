"""The networks of a language model's run, one row each: how it is built, and the knob of its learning rate; and the
networks and optimizers that a run holds.

Starting, saving, loading and forking read this table; a new network is a new row. With LoRA (`nets.lora`) all of them
share the frozen weights of the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from labcore.catalog import choices
from labcore.llm import optimizers
from labcore.llm.nets import compiled, lora, recompute
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.lora import Lora, share
from labcore.runs.spec.run_spec import RunSpec

POLICY, REFERENCE, CRITIC = "policy", "reference", "critic"
REWARD_MODEL, PROCESS_REWARD_MODEL = "reward_model", "process_reward_model"  # those that learn
SCORER, TEACHER = "scorer", "teacher"
BROUGHT = (SCORER, TEACHER)  # to a run, not built from its policy


@dataclass(frozen=True)
class Network:
    """A kind of network that a run may hold. `build` makes it from the current policy. `learning_rate` is the knob of
    its optimizer; without an optimizer it is frozen, unless the knob `follows` is above 0.

    A frozen network can be built again from the run's initial policy, so only checkpoints of forks contain it, because
    a fork's parent may have been deleted. The policy itself is saved as a Hugging Face folder, not as one file.
    """

    build: Callable[[PreTrainedModel], nn.Module]
    learning_rate: str = ""
    follows: str = ""

    def saved(self, spec: RunSpec) -> bool:
        """True if a checkpoint of `spec` holds it."""
        return bool(self.learning_rate or spec.parent or (self.follows and spec.knobs.get(self.follows)))


def _policy(policy: PreTrainedModel) -> nn.Module:
    network: nn.Module = policy
    return network


NETWORKS: Mapping[str, Network] = {
    POLICY: Network(_policy, "learning_rate"),
    REFERENCE: Network(lambda policy: share(policy).requires_grad_(False), follows="reference_every"),
    CRITIC: Network(Critic, "critic_learning_rate"),
    REWARD_MODEL: Network(Critic, "learning_rate"),
    PROCESS_REWARD_MODEL: Network(partial(Critic, outputs=2), "learning_rate"),
}


def needed(spec: RunSpec, knobs: Mapping[str, Any]) -> list[str]:
    """The networks that a run needs: the networks of its row, with a critic if and only if its advantage needs
    values."""
    critic = "advantage" in knobs and choices.ADVANTAGE[str(knobs["advantage"])].critic
    return [name for name in NETWORKS if (critic if name == CRITIC else name in spec.row.models)]


def learning(spec: RunSpec, knobs: Mapping[str, Any]) -> dict[str, str]:
    """The networks of a run that are trained, and the knob of each one's learning rate.

    If a reward model is trained, the policy is not: it only provides the initial weights.
    """
    found = {name: NETWORKS[name].learning_rate for name in needed(spec, knobs) if NETWORKS[name].learning_rate}
    lends = {REWARD_MODEL, PROCESS_REWARD_MODEL} & found.keys()
    return {name: rate for name, rate in found.items() if name != POLICY or not lends}


def needs_scorer(knobs: Mapping[str, Any]) -> bool:
    """True if a run's rewards are those of trained reward models, which are loaded and not built from its policy."""
    return choices.needs_reward_model(knobs)


def built(spec: RunSpec, knobs: Mapping[str, Any], kept: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """The networks that a run needs: the ones in `kept`, and the others built from the policy in `kept`."""
    policy = cast(PreTrainedModel, kept[POLICY])
    if Lora.of(knobs, spec.seed) and not lora.adapted(policy):
        policy.requires_grad_(False)  # so that all networks share its weights
    return {name: kept.get(name) or NETWORKS[name].build(policy) for name in needed(spec, knobs)}


def prepare(spec: RunSpec, knobs: Mapping[str, Any], models: Mapping[str, nn.Module]) -> None:
    """Put adapters on the networks that learn, where the run has such, and mark how each is computed."""
    moved = learning(spec, knobs)
    if adapter := Lora.of(knobs, spec.seed):
        for name in (POLICY, *moved):
            adapter.put_on(models[name])
    for name, model in models.items():
        model.eval()  # no dropout: the sampler and the trainer must see one and the same distribution
        # Also off: a fork's reference is a copy of what was marked.
        recompute.mark(model, name in moved and bool(knobs.get("gradient_checkpointing")))
        compiled.mark(model, name in moved and bool(knobs.get("compile")))


def optimizers_for(spec: RunSpec, knobs: Mapping[str, Any], models: Mapping[str, nn.Module],
                   kept: Mapping[str, Optimizer]) -> dict[str, Optimizer]:
    """The optimizers of the trained networks; those in `kept` are used again, with their moments."""
    kind = str(knobs.get("optimizer", optimizers.ADAMW))
    return {name: kept.get(name) or optimizers.make(kind, learnt(models[name]), float(knobs[rate]))
            for name, rate in learning(spec, knobs).items()}


def learnt(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of a network that its optimizer updates: all of them, or with LoRA the adapter and the head."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
