"""The equation's terms: found in the LaTeX, which stays valid, and with their numbers at the step of the page."""

import json
import re

import pytest

from app import tokens
from app.training import equation, term_values, terms
from app.training.feed import Feed
from labcore.catalog.kinds import KINDS
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Step
from tests.app.seeding import samples, seed
from tests.every import every

ROWS = [(kind.key, row) for kind in KINDS.values() for row in kind.algorithms.values()]
WRAPPED = re.compile(r"\\textcolor\{#7676([0-9a-f]{2})\}\{")


def unwrapped(latex: str) -> str:
    """The LaTeX without its colours, whose braces must match."""
    while found := WRAPPED.search(latex):
        depth, end = 1, found.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(latex[end], 0)
            end += 1
        latex = latex[:found.start()] + latex[found.end():end - 1] + latex[end:]
    return latex


@every("row", [row for _, row in ROWS])
def test_every_equation_stays_valid_and_has_terms(row):
    latex = terms.coloured(row)
    assert unwrapped(latex) == row.latex and latex.count(r"\textcolor") >= 2
    before = {latex[:found.start()].rstrip()[-7:] for found in WRAPPED.finditer(latex)}
    assert not [text for text in before if re.search(r"([_^]|\\hat|\\bar|\\mathbb|frac\d?)$", text)], \
        "an argument without braces"
    assert {int(code, 16) - 96 for code in WRAPPED.findall(latex)} == {*range(len(terms.of(row)))}
    for term in terms.of(row):
        assert term.panel(row) in ("", *row.panels) and (not term.view or term.view in tokens.VIEWS)
        assert term.panel(row) or term.knob in {knob.key for knob in row.knobs}


CLIP = ["ratio", "advantage", "knob_clip_low", "knob_clip_high"]
ENTROPY = ["knob_entropy_coef", "entropy"]


@pytest.mark.parametrize("algorithm, found", [
    ("grpo", ["loss", "length", *CLIP, "knob_beta", "k3", *ENTROPY, "reward", "group_mean", "group_std",
              "knob_group_size"]),
    ("ppo", ["loss", "length", *CLIP, *ENTROPY, "knob_gamma", "knob_gae_lambda", "value", "knob_beta", "k1", "reward",
             "critic_loss", "target", "knob_value_clip"]),
    ("dpo", ["loss", "knob_beta", "chosen", "rejected"]),
    ("sft", ["loss", "length", "logprob"]),
    ("gspo", ["loss", *CLIP, *ENTROPY, "length", "knob_group_size"]),
    ("cispo", ["loss", "length", "ratio", "knob_ratio_cap", "advantage", "logprob", *ENTROPY, "reward", "group_mean",
               "group_std", "knob_group_size"]),
    ("reinforce_average", ["loss", "advantage", "logprob", *ENTROPY, "reward", "knob_beta", "k1", "past_mean",
                           "knob_prompts_per_step", "knob_group_size"]),
    ("vespo", ["loss", "length", "ratio", "advantage", "logprob", *ENTROPY, "knob_gamma_power_positive",
               "knob_gamma_rate_positive", "knob_gamma_power_negative", "knob_gamma_rate_negative",
               "knob_group_size"]),
    ("sapo", ["loss", "length", "soft_gate_0", "ratio", "advantage", *ENTROPY, "knob_gate_positive",
              "knob_gate_negative", "knob_group_size"]),
    ("dppo", ["loss", "length", "ratio", "knob_ratio_cap", "advantage", "logprob", *ENTROPY, "tv_mask_0",
              "knob_divergence_high", "knob_divergence_low", "reward", "group_mean", "group_std",
              "knob_group_size"])])
def test_the_terms_of_an_equation(algorithm, found):
    assert [term.key for term in terms.of(KINDS["llm"].algorithms[algorithm])] == found


@pytest.mark.parametrize("kind, algorithm, found", [
    ("cartpole", "trpo", ["advantage", "step_kl", "knob_delta"]),
    ("cartpole", "dqn", ["knob_n_steps", "knob_gamma", "action_value", "loss", "knob_tau"]),
    ("maze", "q_learning", ["action_value", "knob_alpha", "knob_gamma"])])
def test_a_knob_s_letter_is_the_knob_and_an_expectation_no_knob(kind, algorithm, found):
    assert [term.key for term in terms.of(KINDS[kind].algorithms[algorithm])] == found


def test_a_term_takes_its_scripts_along_but_a_knob_with_a_subscript_is_another_letter():
    latex = terms.coloured(KINDS["llm"].algorithms["ppo"])
    assert re.search(r"\\textcolor\{#\w+\}\{V\^\{old\}_t\}", latex)
    assert re.search(r"\\textcolor\{#\w+\}\{\\varepsilon_V\}", latex)
    assert r"^{\textcolor" not in latex and r"\sum_{i,t}" in latex


@pytest.fixture
def feed() -> Feed:
    feed = Feed(make(algorithm_key="grpo", task_key="sort", steps=10))
    feed.take([Step(step, 100 * step, 0, 1.0, {
        "kl": 0.01 * step, "kl/k1": 0.02, "entropy": 1 / step, "loss": 0.5, "reward": 0.25,
        "frac_reward_zero_std": 0.5, "clip_frac/region": 0.1, "ratio/max": 9.0}) for step in range(1, 7)], [])
    return feed


def shown(feed: Feed, step: int, found: dict | None) -> tuple[dict, dict]:
    """The component's data, and its terms by their keys."""
    data = term_values.payload(feed.spec.row, feed, feed.knobs(step), found, step)
    return data, {each["key"]: each for each in data["terms"]}


def test_the_numbers_are_those_of_the_step(feed):
    _, found = shown(feed, 3, samples(ratio=1.5))
    assert found["knob_beta"]["now"] == "0.04 reward/nat"
    assert found["knob_beta"]["more"] == ["KL to the reference 0.030 nats/token"]
    assert (found["knob_beta"]["panel"], found["knob_beta"]["knob"]) == ("kl", "beta")
    assert found["k3"]["now"] == "0.030 nats/token" and found["entropy"]["now"] == "0.333 nats/token"
    assert found["reward"]["now"] == "0.250", "the unit is its name"
    assert (found["ratio"]["now"], found["ratio"]["more"]) == ("1.50", ["Clipped 10 %"])
    assert (found["advantage"]["now"], found["advantage"]["more"]) == ("−0.70 to 0.70", ["Zero-variance groups 50 %"])
    assert {each["label"]: each["now"] for each in shown(feed, 3, None)[0]["beside"]}["Learning rate"] == "0.0007"


def test_a_knob_that_is_annealed_is_shown_as_the_updates_had_it():
    feed = Feed(make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1", steps=120))
    data = term_values.payload(feed.spec.row, feed, feed.knobs(60), None, 61)
    numbers = {each["knob"]: each["now"] for each in (*data["terms"], *data["beside"])}
    assert numbers["clip_low"] == "0.1, annealed from 0.2" and numbers["learning_rate"] == "0.001, annealed from 0.002"
    assert numbers["gamma"] == "0.99"
    first = term_values.payload(feed.spec.row, feed, feed.knobs(1), None, 1)["beside"]
    assert all("annealed" not in each["now"] for each in first)
    constant = term_values.payload(feed.spec.row, feed, feed.knobs(60) | {"anneal": False}, None, 61)["terms"]
    assert all("annealed" not in each["now"] for each in constant)


def test_before_the_first_step_there_are_the_knobs_alone(feed):
    data, found = shown(Feed(feed.spec), 0, None)
    assert found["knob_beta"]["now"] and not found["knob_beta"]["more"] and not found["ratio"]["now"]
    assert not data["strips"] and not data["source"] and not data["pair"]


def test_the_tokens_are_of_the_completion_with_the_most_signal(feed):
    content = samples()
    loud = content["groups"][1]["completions"][0]
    loud["advantages"], loud["tokens"] = [1.9] * 4, ["q", "r", "s", "t"]
    data, _ = shown(feed, 6, content)
    strip, seen = data["strips"]["advantages"]
    assert re.findall(r'rl-mono"[^>]*>(.)<', strip) == ["q", "r", "s", "t"] and "+1.90" in strip
    assert seen == "Advantage of each token. "
    assert data["source"].startswith("Step 5, the nearest before step 6: a completion of <code>dbca=</code>")


def test_k1_of_a_token_and_the_ratio_as_the_algorithm_takes_it():
    completion = samples()["groups"][0]["completions"][0] | {"own_ratio": [0.9] * 4}
    assert tokens.VIEWS["k1"].values(completion) == pytest.approx([0.2] * 4)
    assert tokens.VIEWS["ratio"].values(completion) == [0.9] * 4


def test_a_long_completion_is_drawn_in_part(feed):
    content = samples()
    for group in content["groups"]:
        for each in group["completions"]:
            each["tokens"], each["cut"] = ["x"] * 200, [""] * 200
    data, _ = shown(feed, 5, content)
    assert data["strips"]["ratio"][0].count("rl-mono") == term_values.MOST
    assert f"the first {term_values.MOST} of its 200 tokens" in data["source"]


def test_a_pair_stands_for_the_tokens_of_preferences():
    feed = Feed(make(algorithm_key="dpo", task_key="sort", steps=10))
    side = {"text": "abcd", "logprob": -1.0, "ref_logprob": -1.0}
    pairs = [{"prompt": name, "chosen": side, "rejected": side, "margin": margin}
             for name, margin in (("near", -0.5), ("far", 2.0))]
    data, _ = shown(feed, 3, {"step": 3, "pairs": pairs, "groups": []})
    assert "near" in data["pair"] and "far" not in data["pair"] and "smallest margin" in data["source"]


def test_the_page_shows_the_step_of_its_link(page, lab):
    run_id = seed(lab.store, "finished")  # β goes from 0.04 to 0.2 for step 3

    def beta(at: str) -> str:
        test = page("llm", run=run_id, tab="Equation", at=at)
        data = next(data for each in test.get("bidi_component") if "beside" in (data := json.loads(each.proto.json)[0]))
        return next(each["now"] for each in data["terms"] if each["key"] == "knob_beta")

    assert [beta("2"), beta("4")] == ["0.04 reward/nat", "0.2 reward/nat"]


@pytest.mark.parametrize("algorithm, knobs, there", [
    ("opd", {"single_step": True}, True), ("gkd", {"sft_loss": "nll"}, False),
    *(pytest.param(*each, marks=pytest.mark.long) for each in (
        ("opd", {}, False), ("sdft", {}, True), ("sdft", {"single_step": False}, False), ("gkd", {}, True)))])
def test_the_kl_to_the_teacher_is_written_where_it_is_in_the_loss(page, lab, algorithm, knobs, there):
    """The microscope and the tab Equation write it alike, with its chart if the row has one."""
    run_id = seed(lab.store, "finished", algorithm=algorithm, knobs=knobs)
    for tab in ("Microscope", "Equation"):
        latex, = (each.value for each in page("llm", run=run_id, tab=tab).latex if "textcolor" in each.value)
        assert ("KL" in unwrapped(latex)) == there, tab
    keys = [term.key for term in terms.of(equation.written(lab.store.run(run_id).spec))]
    assert ("teacher_kl" in keys) == (there and algorithm != "gkd"), "GKD's KL has letters of its own"


@pytest.mark.parametrize("mix", ["", "mine"])
def test_a_knob_that_was_turned_on_stands_in_the_equation_from_then_on(mix):
    spec = make(algorithm_key="opd", task_key="sort", mix=mix)
    assert "KL_t" in equation.written(spec, {"single_step": True}).latex
    assert equation.written(spec, {}).latex == equation.written(spec).latex == spec.row.latex
