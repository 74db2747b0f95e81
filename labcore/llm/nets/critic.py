"""The critic of PPO: a copy of the policy's trunk with one number per position; the reward models are such networks
too, a process reward model with two numbers.

With LoRA the trunk is the frozen weights that the policy is on too, with an adapter of the critic's own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from labcore.llm.nets.lora import share


class Critic(nn.Module):
    """Values (B, S, `outputs`) where the policy has logits, so that both run through the same forward passes.

    The head starts at zero: the first values are 0, whatever the trunk.
    """

    def __init__(self, policy: PreTrainedModel, outputs: int = 1):
        super().__init__()
        self.config = policy.config
        self._is_stateful = getattr(policy, "_is_stateful", False)  # the cache is a state, not positions
        self.trunk = share(policy.base_model)
        self.head = nn.Linear(policy.config.get_text_config().hidden_size, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.to(next(policy.parameters()).device)

    def forward(self, *args: Any, logits_to_keep: int = 0, **inputs: Any) -> CausalLMOutputWithPast:
        output = self.trunk(*args, **inputs)
        values: Tensor = self.head(output.last_hidden_state[:, -logits_to_keep:])
        cache = getattr(output, "past_key_values", None)  # recurrent and cacheless models have none
        return CausalLMOutputWithPast(logits=values.float(), past_key_values=cache)


Network = PreTrainedModel | Critic  # what has the forward passes of `nets.forward`: a policy, a reference, a critic
