import pytest
import torch

from labcore.catalog.choices import ADVANTAGE, FAMILIES, RATIO, SURROGATE
from labcore.errors import LabError
from labcore.maths import ratios, surrogates
from labcore.maths.call import call, member, parameters

# What a loop can supply. A new function may ask for these and no more, or the loops have to learn a new word.
VOCABULARY = {
    "advantage": {"rewards", "token_rewards", "values", "completion_mask", "gamma", "gae_lambda"},
    "ratio": {"logprobs", "old_logprobs", "completion_mask"},
    "surrogate": {"logprobs", "ratio", "advantages", "completion_mask", "clip_low", "clip_high"},
    "kl_estimator": {"logprobs", "ref_logprobs", "ratio"},
    "aggregation": {"token_losses", "completion_mask", "total_rows", "total_tokens", "max_new_tokens"},
    "preference_loss": {"log_ratio_chosen", "log_ratio_rejected", "beta"},
}
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
    quantities = {**batch, **tensors, "ratio": tensors["logprobs"].exp(), "rewards": tensors["advantages"],
                  "token_rewards": tensors["advantages"], "values": tensors["logprobs"], "gamma": 0.9,
                  "gae_lambda": 0.8, "token_losses": tensors["logprobs"],
                  "log_ratio_chosen": tensors["logprobs"], "log_ratio_rejected": tensors["old_logprobs"]}
    result = call(member(family, key), quantities)
    assert result.dtype == dtype
    assert result.shape == (() if family.key == "aggregation" else (6, 7))


def test_it_gives_what_is_asked_for_and_nothing_else():
    given = {"ratio": torch.tensor([2.0]), "advantages": torch.tensor([1.0]), "clip_low": 0.2, "clip_high": 0.3,
             "values": None, "beta": 1.0}
    assert call(surrogates.clip, given) == pytest.approx(1.3)
    assert call(surrogates.cpi, given) == 2


def test_a_missing_quantity_is_named():
    with pytest.raises(TypeError, match=r"surrogates\.clip needs clip_high, ratio; there are only advantages, clip_l"):
        call(surrogates.clip, {"advantages": 1, "clip_low": 0.2})


def test_members_are_found_by_name():
    assert member(RATIO, "token") is ratios.token
    assert member(SURROGATE, "clip") is surrogates.clip


def test_an_unknown_member_is_the_users_error():
    with pytest.raises(LabError, match="group_mean"):
        member(ADVANTAGE, "group_means")
