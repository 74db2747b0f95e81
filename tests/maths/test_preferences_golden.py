"""The 59 preference losses of TRL: value, gradient by the token log-probs, and metrics."""


import pytest
import torch

from labcore.catalog.choices import LOSSES
from labcore.llm.preference_objective import Sides, implicit_rewards, loss, summed
from labcore.maths import preferences
from labcore.runs.spec.run_spec import make
from tests.references import golden

GOLDEN = golden("trl_dpo_loss")
CASES = GOLDEN["cases"]
OURS = {"ipo": "ipo_mean", "js_divergence": "jensen_shannon", "alpha_divergence": "alpha"}


def name(case: dict) -> str:
    config = case["config"]
    return "-".join(map(str, ("+".join(config["loss_type"]), config["beta"], config["label_smoothing"],
                              config["f_divergence_type"], config["f_alpha_divergence_coef"], config["ld_alpha"],
                              config["use_weighting"], config["dtype"])))


def knobs_of(config: dict, first: str) -> dict:
    """TRL's settings under our names."""
    smoothing = config["label_smoothing"]
    given = {"preference_loss": OURS.get(first, first), "beta": config["beta"], "label_smoothing": smoothing,
             "divergence": OURS.get(config["f_divergence_type"], config["f_divergence_type"]),
             "divergence_alpha": config["f_alpha_divergence_coef"], "discopop_tau": config["discopop_tau"],
             "ld_alpha": 1.0 if config["ld_alpha"] is None else config["ld_alpha"],
             "pair_weighting": config["use_weighting"]}
    if first == "exo_pair":
        given["exo_epsilon"] = smoothing
    return dict(make(algorithm_key="dpo", task_key="sort", knobs=given).knobs)


def sides_of(case: dict, knobs: dict) -> tuple[torch.Tensor, Sides]:
    """The token log-probs, and the completions with those of a pair next to each other."""
    given = {key: torch.tensor(value, dtype=getattr(torch, case["config"]["dtype"]))
             for key, value in GOLDEN["inputs"].items()}
    logprobs = given["per_token_logps"].requires_grad_()
    order = torch.arange(10).view(2, 5).T.flatten()
    mask = given["completion_mask"][:, 1:].bool()[order]
    likelihoods = preferences.likelihood(logprobs[order], given["log_sum_sq_probs"][order], mask)
    return logprobs, Sides(
        summed(knobs, logprobs[order], mask, True), mask.sum(1), torch.tensor([True, False]).repeat(5),
        summed(knobs, given["ref_per_token_logps"][order], mask, True),
        likelihoods if knobs["pair_weighting"] else None)


@pytest.mark.parametrize("case", CASES, ids=map(name, CASES))
def test_matches_trl(close, case):
    config = case["config"]
    parts = [knobs_of(config, each) for each in config["loss_type"]]
    knobs = {**parts[0], **{key: part["preference_loss"] for key, part in zip(LOSSES, parts, strict=False)},
             **dict(zip(LOSSES.values(), config["loss_weights"] or [1.0], strict=False))}
    logprobs, sides = sides_of(case, knobs)
    value = loss(knobs, sides, 5)
    # Of EXO's ε TRL takes the logarithm in float32.
    rounded = torch.float32 if "exo_pair" in config["loss_type"] else None
    close(value, case["loss"], rounded)
    close(torch.autograd.grad(value, logprobs)[0], case["grad_logps"], rounded)
    if config["loss_type"] == ["sft"]:
        return  # TRL logs the log-probs without their tails, which are not what its loss has seen
    rewards = implicit_rewards(config["beta"], sides).view(5, 2)
    for key, found in {"chosen": rewards[:, 0].mean(), "rejected": rewards[:, 1].mean(),
                       "margins": (rewards[:, 0] - rewards[:, 1]).mean()}.items():
        close(found, case["metrics"][f"rewards/{key}"])
    close((rewards[:, 0] > rewards[:, 1]).double().mean(), case["metrics"]["rewards/accuracies"], torch.float32)
    close(sides.logprobs[::2].mean(), case["metrics"]["logps/chosen"])
    close(sides.logprobs[1::2].mean(), case["metrics"]["logps/rejected"])


@pytest.mark.parametrize("forgotten", LOSSES.values())
def test_a_weight_that_is_forgotten_is_noticed(close, forgotten):
    """0.8 × sigmoid + 0.2 × bco_pair + sft; each weight is another one here."""
    [case] = [case for case in CASES if len(case["config"]["loss_type"]) == 3]
    with pytest.raises(AssertionError):
        test_matches_trl(close, {**case, "config": {**case["config"], "loss_weights": [
            weight + (key == forgotten) for key, weight in zip(LOSSES.values(), case["config"]["loss_weights"],
                                                               strict=True)]}})


def test_a_second_loss_is_added_with_its_weight(close):
    """The weighted sum of TRL without its third loss."""
    [case] = [case for case in CASES if len(case["config"]["loss_type"]) == 3]
    first = knobs_of(case["config"], "sigmoid")
    _, sides = sides_of(case, first)
    both = loss({**first, "second_loss": "sft", "second_weight": 0.7}, sides, 5)
    close(both, loss(first, sides, 5) + 0.7 * loss({**first, "preference_loss": "sft"}, sides, 5))


@pytest.mark.parametrize("config", [{"loss_type": ["sigmoid", "sft"]}, {"loss_type": ["sft", "sigmoid"]}],
                         ids=["second", "first"])
def test_without_its_tail_a_longer_chosen_side_still_learns_its_end_from_sft(config):
    """At ld_alpha 0 the last token of the longer side has no gradient from DPO: all that it has comes from SFT."""
    [case] = [case for case in CASES if case["config"]["ld_alpha"] == 0 and case["config"].items() >= config.items()]
    first, second = (knobs_of(case["config"], each) for each in case["config"]["loss_type"])
    knobs = {**first, "second_loss": second["preference_loss"], "second_weight": 0.7}
    logprobs, sides = sides_of(case, knobs)
    slope = torch.autograd.grad(loss(knobs, sides, 5), logprobs)[0]
    mask = torch.tensor(GOLDEN["inputs"]["completion_mask"])[:, 1:]
    longer = (mask[:5].sum(1) > mask[5:].sum(1)).nonzero()[:, 0]
    last = (mask.cumsum(1) * mask).argmax(1)
    weight = 0.7 if config["loss_type"][0] == "sigmoid" else 1.0
    assert len(longer) and slope[longer, last[longer]].tolist() == pytest.approx(
        [-weight / int(mask[:5].sum())] * len(longer))


@pytest.mark.parametrize("second", ["sft", "kto", "orpo"])
def test_beside_dpo_without_tails_others_see_every_token(close, second):
    """What a second loss adds at ld_alpha 0.3 is what it adds at 1; of ORPO that holds for its SFT term, at β = 0."""
    [case] = [case for case in CASES if (case["config"]["ld_alpha"], case["config"]["loss_type"]) == (0.3, ["sigmoid"])]
    knobs, added = knobs_of(case["config"], "sigmoid"), []
    kl = torch.tensor(0.1, dtype=torch.float64)
    for alpha in (0.3, 1.0):
        first = {**knobs, "ld_alpha": alpha} | ({"beta": 0.0} if second == "orpo" else {})
        both = {**first, "second_loss": second, "second_weight": 0.7}
        _, sides = sides_of(case, both)
        added.append(loss(both, sides, 5, kl) - loss(first, sides, 5, kl))
    close(added[0], float(added[1].detach()))


def test_there_are_all_cases():
    assert len(CASES) == 59
    assert {kind for case in CASES for kind in case["config"]["loss_type"]} >= {
        "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired",
        "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"}
