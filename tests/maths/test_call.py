import pytest
import torch

from labcore.catalog.choices import ADVANTAGE, FAMILIES, RATIO, SURROGATE
from labcore.errors import LabError
from labcore.maths import ratios, surrogates
from labcore.maths.call import call, member, parameters

# What a loop can supply. A new function may ask for these and no more, or the loops have to learn a new word.
VOCABULARY = {
    "shaping": {"rewards", "lengths", "max_new_tokens", "overlong_buffer", "reward_low", "reward_high",
                "length_cost"},
    "selection": {"rewards", "truncated"},
    "advantage": {"rewards", "greedy_rewards", "token_rewards", "values", "completion_mask", "gamma", "gae_lambda"},
    "ratio": {"logprobs", "old_logprobs", "completion_mask"},
    "surrogate": {"logprobs", "ratio", "advantages", "completion_mask", "clip_low", "clip_high", "ratio_cap",
                  "gate_positive", "gate_negative"},
    "kl_estimator": {"logprobs", "ref_logprobs", "ratio"},
    "aggregation": {"token_losses", "completion_mask", "total_rows", "total_tokens", "max_new_tokens"},
    "preference_loss": {"log_ratio_chosen", "log_ratio_rejected", "beta"},
}
KNOBS = {"gamma": 0.9, "gae_lambda": 0.8, "ratio_cap": 5.0, "gate_positive": 1.0, "gate_negative": 1.05,
         "overlong_buffer": 2, "reward_low": -1.0, "reward_high": 1.0, "length_cost": 0.1}
MEMBERS = [(family, key) for family in FAMILIES for key in family.names]


@pytest.mark.parametrize(("family", "key"), MEMBERS, ids=[f"{family.key}-{key}" for family, key in MEMBERS])
def test_every_choice_is_a_documented_function_of_known_quantities(family, key):
    function = member(family, key)
    names, required = parameters(function)
    assert required <= VOCABULARY[family.key]
    assert not (names - required) & set().union(*VOCABULARY.values()), "a quantity with a default may go unnoticed"
    first_line = function.__doc__.splitlines()[0]
    assert "->" in first_line and "=" in first_line
    assert "return" in function.__annotations__


@pytest.mark.parametrize(("family", "key"), MEMBERS, ids=[f"{family.key}-{key}" for family, key in MEMBERS])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_choice_keeps_dtype_and_shape(batch, family, key, dtype):
    tensors = {name: value.to(dtype) if torch.is_floating_point(value) else value
               for name, value in batch.items() if isinstance(value, torch.Tensor)}
    tensors |= {"ratio": tensors["logprobs"].exp(), "rewards": tensors["advantages"],
                "greedy_rewards": tensors["advantages"][:, :1], "token_rewards": tensors["advantages"],
                "values": tensors["logprobs"], "token_losses": tensors["logprobs"],
                "lengths": batch["completion_mask"].sum(1, keepdim=True), "truncated": batch["completion_mask"],
                "log_ratio_chosen": tensors["logprobs"], "log_ratio_rejected": tensors["old_logprobs"]}
    result = call(member(family, key), KNOBS | {name: value for name, value in batch.items() if name not in tensors},
                  tensors)
    assert result.dtype == (torch.bool if family.key == "selection" else dtype)
    assert result.shape == (() if family.key == "aggregation" else (6, 7))


def test_it_gives_what_is_asked_for_and_nothing_else():
    knobs = {"clip_low": 0.2, "clip_high": 0.3, "beta": 1.0}
    tensors = {"ratio": torch.tensor([2.0]), "advantages": torch.tensor([1.0]), "values": None}
    assert call(surrogates.clip, knobs, tensors) == pytest.approx(1.3)
    assert call(surrogates.cpi, knobs, tensors) == 2


def test_a_name_in_both_is_the_tensor():
    """`ratio` is the knob that chooses the kind of ratio, and the ratio itself."""
    knobs = {"ratio": "token", "advantages": 3}
    assert call(surrogates.cpi, knobs, {"ratio": 2}) == 6
    assert call(surrogates.cpi, {"ratio": 5, "advantages": 7}, {}) == 35


def test_a_missing_quantity_is_named():
    with pytest.raises(TypeError, match=r"surrogates\.clip needs clip_high, ratio; there are only the tensors "
                                        r"advantages and the knobs beta, clip_low\."):
        call(surrogates.clip, {"clip_low": 0.2, "beta": 0.1}, {"advantages": 1})
    with pytest.raises(TypeError, match=r"needs advantages; there are only the tensors ratio and the knobs none\."):
        call(surrogates.cpi, {}, {"ratio": 1})


def test_members_are_found_by_name():
    assert member(RATIO, "token") is ratios.token
    assert member(SURROGATE, "clip") is surrogates.clip


def test_an_unknown_member_is_the_users_error():
    with pytest.raises(LabError, match="group_mean"):
        member(ADVANTAGE, "group_means")
