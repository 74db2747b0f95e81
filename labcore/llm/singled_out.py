"""The tokens that a surrogate treats in another way, where they depend on all tokens of an update.

They are found before the batch is cut into micro-batches, so that the gradient does not depend on the cut.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from labcore.catalog import choices
from labcore.llm.generation import policy_logprobs_and_entropy
from labcore.llm.objective import ratio_of
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.maths.call import beside, call

DRAWS = 2**32 + 9  # a tag that no step has, nor a probe: see `probes.answer`


@torch.no_grad()
def singled_out(session: LlmSession, rollout: Rollout, fresh: bool = False) -> Rollout:
    """`rollout`, that of one update, with the tokens that the run's surrogate finds in it.

    It costs one more pass of the policy, unless its weights are still those that sampled all (`fresh`). Random numbers
    are those of the seed and the update.
    """
    family, knobs = choices.SURROGATE, session.knobs
    find = beside(family, family[knobs["surrogate"]].singles_out)
    if find is None or not rollout.counted.any():
        return rollout
    known = fresh and rollout.apart is None
    logprobs = rollout.old_logprobs if known else policy_logprobs_and_entropy(
        session, rollout.prompts, rollout.ids, rollout.completion_mask)[0]
    luck = np.random.default_rng((session.prompt_seed, DRAWS, session.updates))
    tensors = {"logprobs": logprobs, "old_logprobs": rollout.old_logprobs, "completion_mask": rollout.counted,
               "advantages": rollout.credited,
               "draws": torch.as_tensor(luck.random(logprobs.shape), dtype=logprobs.dtype, device=logprobs.device)}
    ratio = ratio_of(knobs, tensors | {"completion_mask": rollout.completion_mask}).expand_as(logprobs)
    return replace(rollout, singled_out=call(find, knobs, tensors | {"ratio": ratio}))
