import pytest
import torch

from labcore.catalog.choices import ADVANTAGE, FAMILIES, OBJECTIVE, PREFERENCE_LOSS, RATIO, SFT_LOSS, SURROGATE
from labcore.errors import LabError
from labcore.maths import ratios, surrogates
from labcore.maths.call import call, cut_of, member, parameters
from tests.every import every

KNOBS = {"gamma": 0.9, "gae_lambda": 0.8, "clip_low": 0.2, "clip_high": 0.28, "ratio_cap": 5.0, "gate_positive": 1.0,
         "gate_negative": 1.05, "beta": 0.1, "max_new_tokens": 8, "overlong_buffer": 2, "overlong_penalty": 0.5,
         "length_cost": 0.1, "label_smoothing": 0.1, "exo_epsilon": 0.01, "discopop_tau": 0.05, "target_margin": 0.5,
         "desirable_weight": 1.0, "undesirable_weight": 1.0, "divergence_alpha": 0.5, "reward_clip": 1.0,
         "teacher_discount": 0.5, "single_step": False, "jsd_beta": 0.5, "min_temperature": 0.1,
         "pass_k": 2, "cov_pull": 1.0, "regression_beta": 0.3, "classifier_temperature": 0.5,
         "reward_low": -0.5, "reward_high": 1.0,
         "clip_delta": 1.5, "dual_clip": 3.0, "gamma_power_positive": 2.0, "gamma_rate_positive": 3.0,
         "divergence_low": 0.1, "divergence_high": 0.2, "pull": 2.0, "reward_alpha": 0.25,
         "future_half_life": 4.0, "future_range": 0.2,
         "future_safety": 4.0, "gamma_power_negative": 3.0, "gamma_rate_negative": 2.0}
EVERY = [(family, key) for family in (*FAMILIES, OBJECTIVE) for key in family.names]
MEMBERS = [(family, key) for family, key in EVERY if family.module.startswith("labcore.maths.")]


def functions(family, key):
    """That of a choice, and of a surrogate the one that says what it cuts off."""
    cut = cut_of(family, key) if family is SURROGATE else None
    return [member(family, key), *([cut] if cut else [])]


@every(("family", "key"), EVERY)
def test_every_choice_asks_for_what_its_family_provides_and_the_knobs_it_needs(family, key):
    """Nothing more: a wrong name fails here and not in mid-run."""
    known = {*family.provides, *family[key].needs}
    for function in functions(family, key):
        names, required = parameters(function)
        assert required <= known
        optional = {*getattr(family[key], "absorbs", ())}  # weights that a run may not have
        assert (names - required) & known == optional & names, "a quantity with a default may go unnoticed"


@every(("family", "key"), MEMBERS)
def test_every_choice_is_a_documented_equation(family, key):
    for function in functions(family, key):
        first_line = function.__doc__.splitlines()[0]
        assert "->" in first_line and "=" in first_line
        assert "return" in function.__annotations__


def test_what_a_choice_cuts_off_is_a_function_beside_it():
    assert cut_of(SURROGATE, "clip") is surrogates.clip_cut
    assert cut_of(SURROGATE, "detached_weight") is surrogates.cap_cut
    assert cut_of(SURROGATE, "score_function") is None


@every("family, key, dtype", [(*member, dtype) for member in MEMBERS for dtype in (torch.float64, torch.float32)])
def test_every_choice_keeps_dtype_and_shape(batch, family, key, dtype):
    tensors = {name: value.to(dtype) if torch.is_floating_point(value) else value
               for name, value in batch.items() if isinstance(value, torch.Tensor)}
    tensors |= {"ratio": tensors["logprobs"].exp(), "rewards": tensors["advantages"],
                "task_rewards": tensors["advantages"],
                "greedy_rewards": tensors["advantages"][:, :1], "opponent_rewards": tensors["old_logprobs"],
                "token_rewards": tensors["advantages"],
                "values": tensors["logprobs"], "token_losses": tensors["logprobs"],
                "lengths": batch["completion_mask"].sum(1, keepdim=True), "truncated": batch["completion_mask"],
                "counted": batch["completion_mask"], "prompt_values": tensors["advantages"][:, :1],
                "square_sums": tensors["logprobs"].exp(), "scored_tokens": batch["completion_mask"], "group_size": 3,
                "singled_out": batch["completion_mask"], "step_ends": batch["completion_mask"],
                "teacher_logprobs": tensors["ref_logprobs"], "policy": tensors["logprobs"].log_softmax(-1),
                "teacher": tensors["ref_logprobs"].log_softmax(-1), "scores": tensors["logprobs"].exp(),
                "steps": batch["completion_mask"],
                "past_rewards": tensors["advantages"][:, :1], "reward_parts": tensors["advantages"][None],
                "part_weights": tensors["advantages"].new_ones(1), "scored": batch["completion_mask"],
                "whole_log_ratio_chosen": tensors["logprobs"], "whole_log_ratio_rejected": tensors["old_logprobs"],
                "log_ratio_chosen": tensors["logprobs"], "log_ratio_rejected": tensors["old_logprobs"],
                "log_ratios": tensors["logprobs"], "kl": tensors["logprobs"],
                "logprob_answer": tensors["logprobs"], "mean_length_answer": torch.tensor(3.0, dtype=dtype),
                "mismatched_kl": tensors["advantages"].mean(), "theirs_chosen": tensors["logprobs"].exp(),
                "theirs_rejected": tensors["old_logprobs"].exp()}
    tensors |= {f"{of}logprob_{side}": tensors["logprobs"] for of in ("", "ref_", "whole_")
                for side in ("chosen", "rejected")}
    tensors |= {f"length_{side}": tensors["lengths"].clamp(min=1) for side in ("chosen", "rejected")}
    totals = {"total_rows": batch["total_rows"], "total_tokens": batch["total_tokens"]}
    result = call(member(family, key), KNOBS, tensors | totals)
    assert result.dtype == (torch.bool if family.key == "selection" else dtype)
    both = family is PREFERENCE_LOSS and family[key].unpaired  # a number for each side
    whole = getattr(family[key], "teacher", False) and family is SFT_LOSS  # over the vocabulary
    assert result.shape == (() if family.key == "aggregation" else (12, 7) if both else (6,) if whole else (6, 7))


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
