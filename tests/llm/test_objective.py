"""The one line of every online algorithm, with the catalog's rows: TRL's losses, and the exact policy gradient."""

from collections import Counter
from dataclasses import replace
from math import exp

import pytest
import torch

from labcore.catalog import choices
from labcore.catalog.kinds import algorithm
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.llm import objective
from labcore.llm.batch import Prompts
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.objective import Totals
from labcore.llm.rollout import Rollout, credit
from labcore.maths.logprobs import logprobs_and_entropy
from tests.llm.tools import every_completion, model, prompts
from tests.references import golden

GRPO = golden("trl_grpo_loss")
GMPO = golden("trl_gmpo_loss")  # on the inputs of GRPO
RLOO = golden("trl_rloo_loss")


def knobs(key: str, **changed):
    return {knob.key: knob.default for knob in algorithm(key).knobs} | changed


# ---------------------------------------------------------------------------- against TRL

# Each row as TRL says it: its loss, and the level of its ratio.
IN_TRL = {"grpo": ("grpo", "token"), "ppo": ("dapo", "token"), "dr_grpo": ("dr_grpo", "token"),
          "dapo": ("dapo", "token"), "gspo": ("grpo", "sequence"), "cispo": ("cispo", "token"),
          "sapo": ("sapo", "token"), "remax": ("dapo", "token"), "reinforce_pp": ("dapo", "token"),
          "reinforce_pp_baseline": ("dapo", "token"), "gspo_token": ("grpo", "sequence"),
          "luspo": ("luspo", "sequence"), "vespo": ("vespo", "token"), "bnpo": ("bnpo", "token"),
          "bnpo_token_mean": ("bnpo", "token"), "gdpo": ("dapo", "token"), "maxrl": ("dapo", "token"),
          "passk": ("dapo", "token"), "icepop": ("grpo", "token")}
OF_OTHERS = {"tv_mask", "kl_mask", "quadratic", "future_kl_clip",  # compared with other tools in test_trust
             "clip_cov", "kl_cov", "centred_regression", "classifier"}  # in tests/maths


def same_as(config, key: str, beta: float, level: str = "") -> bool:
    """Whether a TRL case is the row, by default with its own level of ratio: plain k3, nothing extra."""
    loss_type, level = IN_TRL[key][0], level or IN_TRL[key][1]
    return config == {**config, "loss_type": loss_type, "beta": beta, "importance_sampling_level": level,
                      "delta": None, "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None,
                      "entropy_coef": 0.0, "dtype": "float64", "gradient_accumulation_steps": 1,
                      "old_logps_given": True} and (beta == 0 or not config["use_bias_correction_kl"])


def cases():
    for case in GRPO["cases"]:
        config = case["config"]
        for key, beta in (*((key, 0.0) for key in IN_TRL), ("grpo", 0.04)):
            if same_as(config, key, beta):
                yield pytest.param(key, GRPO["inputs"], case, config | {"max_new_tokens": 8},
                                   id=f"{key}-{beta}-{config['epsilon']}-{config['epsilon_high']}")
    for case in GMPO["cases"]:
        if case["config"]["beta"] == 0:
            yield pytest.param("gmpo", GRPO["inputs"], case, case["config"], id=f"gmpo-{case['config']['epsilon']}")
    for case in RLOO["cases"]:
        yield pytest.param("rloo", RLOO["inputs"], case, case, id=f"rloo-{case['epsilon_high']}")


CASES = list(cases())


def row_knobs(key, config):
    """The row's own choices, with the numbers of the case."""
    given = knobs(key)
    numbers = {"clip_low": config["epsilon"], "clip_high": config["epsilon_high"], "beta": config.get("beta", 0.0),
               "ratio_cap": config["epsilon_high"],
               **{f"gamma_{ours}_{side}": config.get(f"vespo_{theirs}_{side[:3]}", 1.0)
                  for side in ("positive", "negative") for ours, theirs in (("power", "k"), ("rate", "lambda"))},
               # TRL keeps these two in float32, whatever the dtype of the rest.
               **{name: float(torch.tensor(config.get(f"sapo_temperature_{side}", 1.0)))
                  for name, side in (("gate_positive", "pos"), ("gate_negative", "neg"))}}
    return given | {name: value for name, value in numbers.items() if name in given}


def row_loss(key, inputs, config, **changed):
    """The loss by the row's own choices but those `changed`, and its gradient by the log-probs."""
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in inputs.items()}
    logprobs = given["per_token_logps"].requires_grad_()
    zeros = torch.zeros_like(logprobs)
    rollout = Rollout(prompts([1] * 6), zeros.long(), given["completion_mask"].bool(), torch.zeros(6) > 0,
                      given["advantages"], given["old_per_token_logps"], given.get("ref_per_token_logps", zeros),
                      advantages=given["advantages"][:, None].expand_as(logprobs))
    total, ratio = objective.loss(row_knobs(key, config) | changed, rollout, logprobs, zeros, Totals.of(rollout, 8))
    return total, torch.autograd.grad(total, logprobs)[0], ratio


def agrees(case, total, gradient) -> bool:
    expected = torch.tensor(case["grad_logps"], dtype=torch.float64)
    return total.item() == pytest.approx(case["loss"], rel=1e-9) and torch.allclose(gradient, expected, 1e-9, 1e-11)


def test_each_row_is_compared():
    counts = Counter(param.values[0] for param in CASES)
    assert counts.keys() == {*IN_TRL, "gmpo", "rloo"} and min(counts.values()) >= 2
    tried = {key for key, row in ALGORITHMS.items() if row.loop == "online"} - counts.keys()
    ratios = {key for key in tried if knobs(key)["ratio"] != "none"}  # TRL has no loss without one
    apart = {knobs(key)["surrogate"] for key in ratios} - {"clip"}  # the others differ from GRPO in their credit
    assert apart == OF_OTHERS


@pytest.mark.parametrize("key, inputs, case, config", CASES)
def test_rows_match_trl(key, inputs, case, config):
    total, gradient, _ = row_loss(key, inputs, config)
    assert agrees(case, total, gradient)
    assert not agrees(case, -total, -gradient)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_vespo_s_kl_is_weighed_by_the_chosen_ratio_as_trl_does(level):
    """Its surrogate has that of the whole sequence in either case."""
    weighed = [case for case in GRPO["cases"] if case["config"]["use_bias_correction_kl"]]
    plain = {"use_bias_correction_kl": False}
    [case] = [case for case in weighed if same_as(case["config"] | plain, "vespo", 0.04, level)]
    for name, ratio in (("token", "token"), ("sequence", "sequence_mean")):
        found = row_loss("vespo", GRPO["inputs"], case["config"], ratio=ratio, kl_placement="loss",
                         kl_estimator="ratio_k3")
        assert agrees(case, *found[:2]) == (name == level)


def test_gmpo_s_kl_is_trl_s_without_the_ratio():
    [case] = [case for case in GMPO["cases"] if case["config"]["beta"]]
    for estimator in ("k3", "ratio_k3"):
        found = row_loss("gmpo", GRPO["inputs"], case["config"], kl_placement="loss", kl_estimator=estimator)
        assert agrees(case, *found[:2]) == (estimator == "k3")


@pytest.mark.parametrize("key, inputs, case, config", [param for param in CASES if param.values[0] != "rloo"])
def test_what_is_cut_off_is_what_trl_logs(key, inputs, case, config):
    """Shares of tokens, or of sequences where the ratio is one of sequences; TRL logs them in float32."""
    ratio = row_loss(key, inputs, config)[2].detach()
    columns, mask = slice(None), torch.tensor(inputs["completion_mask"]).bool()
    if config["importance_sampling_level"] == "sequence":
        columns, mask = slice(1), torch.ones(6, 1, dtype=torch.bool)
    advantages = torch.tensor(inputs["advantages"], dtype=torch.float64)[:, None].expand_as(ratio)
    got = objective.cut_shares(row_knobs(key, config), {
        "ratio": ratio[:, columns], "advantages": advantages[:, columns]}, mask)
    names = {"high": "cispo_clip_ratio"} if key == "cispo" else {
        side: f"clip_ratio/{side}_mean" for side in ("low", "high", "region")}
    if key in ("sapo", "vespo"):
        assert got == {}  # a gate cuts nothing off
        return
    assert {side: got[side].item() for side in names} == {
        side: pytest.approx(case["metrics"][name], abs=1e-6) for side, name in names.items()}


def test_some_are_cut_off():
    """Else the comparison above would be one of zeros."""
    named = {param.values[0]: {name for name, value in param.values[2]["metrics"].items() if value and "clip" in name}
             for param in CASES if param.values[0] in ("dapo", "gspo", "cispo")}
    assert all(named.values()), named


# ---------------------------------------------------------------------------- the exact gradient

LENGTH, EOS, BETA = 3, 1, 0.3


class World:
    """A model of two tokens, all its completions, a reward for each, and J = E[R − β log π/π_ref]."""

    def __init__(self):
        self.policy = model("gpt2", vocabulary=2, dtype=torch.float64)  # Llama norms in float32
        self.prompt = Prompts(torch.tensor([[0, 1, 0]]), torch.ones(1, 3, dtype=torch.bool))
        self.ids, self.mask = every_completion(2, LENGTH, EOS)
        self.rewards = torch.tensor([0.3, -1.0, 2.0, 0.7], dtype=torch.float64)
        self.ref = self.tokens(model("gpt2", vocabulary=2, seed=5, dtype=torch.float64)).detach()

    def tokens(self, network):
        logits = completion_outputs(network, self.prompt, self.ids)
        return logprobs_and_entropy(logits, self.ids)[0].masked_fill(~self.mask, 0)

    def gradient(self, scalar):
        return torch.cat([g.flatten() for g in torch.autograd.grad(scalar, list(self.policy.parameters()))])

    def ascent(self):
        logprobs = self.tokens(self.policy).sum(1)
        objective_value = (logprobs.exp() * (self.rewards - BETA * (logprobs - self.ref.sum(1)))).sum()
        assert logprobs.exp().sum().item() == pytest.approx(1, abs=1e-9)
        return self.gradient(objective_value)

    def rollout(self, rows, logprobs):
        return Rollout(self.prompt, self.ids[rows], self.mask[rows], torch.zeros(len(rows)) > 0, self.rewards[rows],
                       logprobs.detach()[rows], self.ref[rows])

    def loss(self, given, rollout, rows, logprobs):
        totals = Totals.of(rollout, LENGTH)
        return objective.loss(given, rollout, logprobs[rows], torch.zeros_like(logprobs[rows]), totals)[0]


@pytest.fixture
def world():
    return World()


def assert_descends(got, ascent):
    torch.testing.assert_close(got, -ascent, rtol=1e-8, atol=1e-10)
    assert (got - ascent).norm() > 0.1 * ascent.norm()


def test_the_gradient_of_reinforce_is_the_policy_gradient(world):
    """Every completion once, weighed by its probability: any one baseline for all leaves the expectation exact."""
    given, everyone = knobs("reinforce", beta=BETA), list(range(len(world.ids)))
    logprobs = world.tokens(world.policy)
    credited = credit(given, world.rollout(everyone, logprobs))
    expected_loss = 0
    for row, probability in enumerate(logprobs.sum(1).exp().detach()):
        alone = replace(world.rollout([row], logprobs), advantages=credited.advantages[[row]])
        expected_loss = expected_loss + probability * world.loss(given, alone, [row], logprobs)
    assert_descends(world.gradient(expected_loss), world.ascent())


def test_the_gradient_of_rloo_is_the_policy_gradient(world):
    """Every pair of completions, weighed by its probability: the other's reward is a baseline without bias."""
    given = knobs("rloo", beta=BETA)
    logprobs = world.tokens(world.policy)
    probabilities = logprobs.sum(1).exp().detach()
    expected_loss = 0
    for first in range(len(world.ids)):
        for second in range(len(world.ids)):
            rows = [first, second]
            credited = credit(given, world.rollout(rows, logprobs))
            loss = world.loss(given, credited, rows, logprobs)
            expected_loss = expected_loss + probabilities[first] * probabilities[second] * loss
    assert_descends(world.gradient(expected_loss), world.ascent())


def test_at_ratio_one_the_clip_is_the_score_function(world):
    logprobs, rows = world.tokens(world.policy), [0, 1, 2, 3]
    given = knobs("grpo", beta=0.0)
    rollout = credit(given, world.rollout(rows, logprobs))
    score = given | {"surrogate": "score_function", "ratio": "none"}
    gradients = [world.gradient(world.loss(choice, rollout, rows, world.tokens(world.policy)))
                 for choice in (given, score)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------------- the other terms, and what is logged

def small(advantages, mask=None):
    """Two completions of two tokens; the old log-probs are all −1."""
    mask = torch.ones(2, 2, dtype=torch.bool) if mask is None else mask
    return Rollout(prompts([1, 1]), torch.zeros(2, 2).long(), mask, torch.zeros(2) > 0, torch.zeros(2),
                   -torch.ones(2, 2), torch.full((2, 2), -1.5), advantages=torch.tensor(advantages).view(2, 1) * mask)


def test_the_entropy_bonus_lowers_the_loss():
    rollout, entropy = small([1.0, -1.0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    losses = [objective.loss(knobs("grpo", entropy_coef=coefficient), rollout, rollout.old_logprobs, entropy,
                             Totals.of(rollout, 2))[0].item() for coefficient in (0.0, 0.1)]
    assert losses[1] - losses[0] == pytest.approx(-0.25)


@pytest.mark.parametrize("placement, expected", [("loss", 2 * (0.60653066 - 0.5)), ("reward", 0.0), ("off", 0.0)])
def test_the_kl_is_in_the_loss_only_where_it_is_placed_there(placement, expected):
    rollout = small([1.0, -1.0])
    total, _ = objective.loss(knobs("grpo", beta=2.0, kl_placement=placement), rollout, rollout.old_logprobs,
                              torch.zeros(2, 2), Totals.of(rollout, 2))
    assert total.item() == pytest.approx(expected, abs=1e-6)


def test_token_weights_multiply_the_surrogate_and_neither_the_kl_nor_the_entropy_bonus():
    """A loop over tokens, with all three weights. The last completion is not kept, and counts in no mean of weights."""
    mask = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
    old, sampler, entropy = (torch.tensor(rows) for rows in (
        [[-1.0, -1], [-1, -1], [-1, 0], [-1, -1]], [[-1.5, -0.5], [-1, -2], [-0.25, 0], [-3, -3]],
        [[0.5, 1.0], [2.0, 0.25], [0.75, 9.0], [0.1, 0.1]]))
    rollout = Rollout(prompts([1, 1]), torch.zeros(4, 2).long(), mask, torch.zeros(4) > 0, torch.zeros(4), old,
                      old - 0.5, kept=torch.tensor([True, True, True, False]), sampler_logprobs=sampler,
                      advantages=torch.tensor([[1.0], [-1.0], [-2.0], [3.0]]) * mask)
    logprobs = (old + torch.tensor([[0.5, -0.1], [-0.3, 0.1], [-0.6, 0], [0.2, 0.2]])) * mask
    given = knobs("grpo", beta=2.0, entropy_coef=0.1, off_policy_threshold=0.5, importance_cap=1.5,
                  aggregation="token_mean", clip_low=0.2, clip_high=0.2)
    total, of_weights = 0.0, 0.0
    for row, length in enumerate([2, 2, 1]):
        ours, theirs, advantage = logprobs[row].tolist(), sampler[row].tolist(), float(rollout.advantages[row, 0])
        far = sum(theirs[at] - ours[at] for at in range(length)) / length > 0.5
        for at in range(length):
            log_ratio, to_ref = ours[at] - float(old[row, at]), float(old[row, at]) - 0.5 - ours[at]
            weight = (entropy[row, at] >= 0.75) * (not far or advantage >= 0) * min(exp(old[row, at] - theirs[at]), 1.5)
            surrogate = min(exp(log_ratio) * advantage, min(max(exp(log_ratio), 0.8), 1.2) * advantage)
            total += -weight * surrogate + 2.0 * (exp(to_ref) - to_ref - 1) - 0.1 * float(entropy[row, at])
            of_weights += weight
    floor = torch.tensor(0.75)
    totals = replace(Totals.of(rollout, 2), entropy_floor=floor)
    found, ratio = objective.loss(given, rollout, logprobs, entropy, totals)
    assert found.item() == pytest.approx(float(total) / 5, rel=1e-5)
    got = objective.measures(given, rollout, logprobs, ratio, entropy, floor)
    assert got["token_weight"] == pytest.approx(float(of_weights) / 5, rel=1e-5)


def test_nothing_under_the_mask_reaches_loss_or_gradient():
    mask = torch.tensor([[True, True], [True, False]])
    rollout = small([1.0, -1.0], mask)
    logprobs = torch.tensor([[-1.0, -1.2], [-0.8, -200.0]], requires_grad=True)
    total, ratio = objective.loss(knobs("grpo"), rollout, logprobs, torch.zeros(2, 2), Totals.of(rollout, 2))
    total.backward()
    assert total.isfinite() and logprobs.grad.isfinite().all() and logprobs.grad[1, 1] == 0 and ratio[1, 1] == 1


def test_measures_are_means_over_counted_tokens():
    """Ratios 1.5, 1 | 0.5, — with A = 1 and −1: one of three clipped high, one low."""
    rollout = small([1.0, -1.0], torch.tensor([[True, True], [True, False]]))
    ratio = torch.tensor([[1.5, 1.0], [0.5, 9.0]])
    logprobs = rollout.old_logprobs + ratio.log()
    got = objective.measures(knobs("grpo", beta=0.0), rollout, logprobs, ratio, torch.tensor([[1.0, 2], [6, 99]]))
    assert got == {key: pytest.approx(value, abs=1e-6) for key, value in {
        "entropy": 3.0, "clip_frac/low": 1 / 3, "clip_frac/high": 1 / 3, "clip_frac/region": 2 / 3,
        "surrogate/cpi": 2 / 3, "surrogate/clip": (1.2 + 1 - 0.8) / 3, "surrogate/kl_penalised": 2 / 3,
        "ratio/max": 1.5}.items()}
    penalised = objective.measures(knobs("grpo", beta=1.0), rollout, logprobs, ratio, torch.zeros(2, 2))
    # KL(π_old ‖ π) per token is k3 of the old policy's samples: ρ − 1 − log ρ.
    kl = (0.5 - torch.tensor(1.5).log() + 0 - 0.5 - torch.tensor(0.5).log()) / 3
    assert penalised["surrogate/kl_penalised"] == pytest.approx(2 / 3 - kl.item(), abs=1e-6)


def test_a_row_without_a_clip_measures_none():
    rollout = small([1.0, -1.0])
    got = objective.measures(knobs("reinforce"), rollout, rollout.old_logprobs, torch.ones(2, 2), torch.ones(2, 2))
    assert set(got) == {"entropy"}


def test_what_is_not_kept_counts_nowhere():
    """The second completion is left out: denominators, loss, gradient and what is logged are the first one's alone."""
    rollout = replace(small([1.0, -1.0]), kept=torch.tensor([True, False]))
    assert Totals.of(rollout, 8) == Totals(total_rows=1, total_tokens=2, max_new_tokens=8)
    assert Totals.of(replace(rollout, kept=torch.tensor([False, False])), 8) == Totals(1, 0, 8)
    ratio, entropy = torch.tensor([[1.5, 1.0], [0.5, 9.0]]), torch.tensor([[1.0, 2.0], [6.0, 99.0]])
    for aggregation in choices.AGGREGATION.names:
        logprobs = (rollout.old_logprobs + ratio.log()).requires_grad_()
        given = knobs("grpo", beta=2.0, entropy_coef=0.1, aggregation=aggregation)
        total, _ = objective.loss(given, rollout, logprobs, entropy, Totals.of(rollout, 8))
        total.backward()
        k3 = (rollout.ref_logprobs - logprobs).detach()[0]
        sums = -(1.2 + 1.0) + float(2 * (k3.exp() - 1 - k3).sum()) - 0.1 * 3
        share = {"sequence_mean_token_sum": 1, "constant_length": 1 / 8}.get(aggregation, 1 / 2)
        assert total.item() == pytest.approx(sums * share, rel=1e-5), aggregation
        assert (logprobs.grad[1] == 0).all() and (logprobs.grad[0] != 0).all()
    got = objective.measures(knobs("grpo", beta=0.0), rollout, logprobs.detach(), ratio, entropy)
    assert (got["entropy"], got["ratio/max"], got["clip_frac/high"], got["clip_frac/low"]) == (1.5, 1.5, 0.5, 0.0)
    nothing = replace(rollout, kept=torch.tensor([False, False]))  # a 0 here would lower the mean over the updates
    assert objective.measures(knobs("grpo", beta=0.0), nothing, logprobs.detach(), ratio, entropy) == {}
