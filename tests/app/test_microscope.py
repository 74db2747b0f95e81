"""The microscope: which groups come first, what is folded, and arithmetic that multiplies out."""

import json
from dataclasses import replace
from math import exp

import pytest

from app.llm.microscope import arithmetic, cards, credit, payload, scatter, view, words
from app.llm.microscope.arithmetic import AFTER, MET
from app.llm.microscope.lines import Line
from labcore.catalog import choices
from labcore.catalog.choice import KL
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.worked import Worked
from labcore.runs.spec.run_spec import make
from tests.app.seeding import mounted, samples, seed
from tests.words import says


def completion(text="ab", reward=1.0, advantage=0.7, moved=0.0, **more):
    count = len(text)
    return {"text": text, "reward": reward, "exact": reward == 1, "advantage": advantage, "truncated": False,
            "tokens": list(text), "old_logprobs": [-0.5] * count, "logprobs": [-0.5 + moved] * count,
            "ref_logprobs": [-0.3] * count, "advantages": [advantage] * count, "entropy": [0.5] * count,
            "ratio": [exp(moved)] * count, "cut": [""] * count, **more}


def group(*rewards, **more):
    """A group as GRPO credits it."""
    middle, wide = credit.mean(list(rewards)), credit.spread(list(rewards))
    return {"prompt": "ba=", "answer": "ab", "completions": [
        completion("ab" if reward == 1 else "bb", reward, (reward - middle) / (wide + 1e-4) if wide else 0.0, **more)
        for reward in rewards]}


FLAT, MIXED, GOOD = group(1, 1, 1, 1), group(1, 1, 0, 0), group(1, 1, 1, 0, moved=0.4)
LONG = {**group(0, 1), "completions": [completion("abababab", 0.0, -0.7, cut=["low"] * 8), completion()]}


@pytest.mark.parametrize("sort, first", [("signal", MIXED), ("best", GOOD), ("worst", MIXED), ("changed", GOOD),
                                         ("clipped", LONG), ("longest", LONG)])
def test_groups_are_sorted_and_those_without_signal_come_last(sort, first):
    items = [FLAT, GOOD, MIXED, LONG]
    order = cards.ordered("groups", items, sort)
    assert items[order[0]] is first and order[-1] == 0 and sorted(order) == [0, 1, 2, 3]


def test_groups_are_filtered_and_folded():
    items = [FLAT, GOOD, MIXED, LONG]
    assert cards.kept("groups", items, "zero") == [0] and cards.kept("groups", items, "signal") == [1, 2, 3]
    assert cards.kept("groups", items, "clipped") == [3] and cards.kept("groups", items, "all") == [0, 1, 2, 3]
    shelf = payload.shelf("groups", items, knobs())
    assert shelf["folds"] == [0] and shelf["cards"][0]["mark"] == "zero variance" and not shelf["cards"][1]["mark"]
    assert cards.telling("groups", items)[0] == 2


def test_the_clipped_share_is_that_of_the_last_update_where_the_file_has_it():
    """With one update per batch all its ratios are 1, so it cut nothing off, wherever the policy is afterwards."""
    after = {"cut": ["low", ""]}
    assert cards.clipped(group(1, 0, **after)) == 0.5
    met = group(1, 0, **after, met={"cut": ["", ""]})
    assert cards.clipped(met) == 0 and {row["clipped"] for row in cards.card("groups", met, knobs())["rows"]} == {0}


def test_equal_completions_are_one_row_with_their_number_and_baseline():
    rows = cards.card("groups", MIXED, knobs())["rows"]
    assert [(row["text"], row["count"], row["at"], row["same"]) for row in rows] == [
        ("ab", 2, 0, [0, 1]), ("bb", 2, 2, [2, 3])]
    assert [row["baseline"] for row in rows] == [0.5, 0.5]
    others = cards.card("groups", MIXED, knobs("rloo"))["rows"]
    assert [row["baseline"] for row in others] == pytest.approx([1 / 3, 2 / 3])


def test_pairs_examples_and_answers_are_kinds_of_their_own():
    pair = {"prompt": "a", "margin": 0.3, "chosen": {"text": "x"}, "rejected": {"text": "yy"}}
    worse = {**pair, "margin": -0.2}
    answer = {"prompt": "a", "answer": "b", "completions": [{"text": "b", "reward": 1.0, "exact": True,
                                                             "advantage": None, "tokens": ["b"], "logprobs": [-1.0]}]}
    found = cards.found({"pairs": [pair, worse], "groups": [answer]})
    assert [*found] == ["pairs", "answers"] and cards.ordered("pairs", found["pairs"], "low") == [1, 0]
    assert cards.kept("pairs", found["pairs"], "wrong") == [1]
    inside = payload.inside("answers", answer, 0, MET, knobs("dpo"))
    assert names_of(inside["sides"][0], 0) == ["Log-prob"]
    assert not payload.inside("pairs", pair, 0, MET, knobs("dpo"))["sides"][0]["tokens"]  # of an earlier version


def names_of(side, place):
    """The lines of a token, by the names of their shapes."""
    return [side["shapes"][shape]["name"] for shape, *_ in side["lines"][place]]


def knobs(algorithm="grpo", **more):
    spec = make(algorithm_key=algorithm, task_key="sort", knobs=more)
    return dict(spec.knobs)


def lines_of(group, which=0, place=0, when=AFTER, **more):
    chosen = arithmetic.at(group["completions"][which], when)
    return {line.name: line for line in arithmetic.lines(group, chosen, place, {**knobs(), **more})}


def test_a_clipped_token_by_hand():
    one = group(1, 0, moved=0.4)
    one["completions"][0] |= {"cut": ["high"] * 2, "objective": [1.2 * 0.70701] * 2, "slope": [0.0] * 2}
    found = lines_of(one, clip_high=0.2)
    assert (found["Ratio"].worked, found["Ratio"].result) == ("exp(−0.1000 − (−0.5000))", "1.4918")
    assert found["Advantage"].worked == "(1.0000 − 0.5000) / (0.7071 + 0.0001)"
    assert found["Advantage"].result == "0.7070"
    assert (found["Unclipped"].worked, found["Unclipped"].result) == ("1.4918 × 0.7070", "1.0547")
    assert (found["Clipped"].worked, found["Clipped"].result) == ("1.2000 × 0.7070", "0.8484")
    assert found["Clipped"].active and found["Clipped"].still and not found["Unclipped"].active
    assert (found["Surrogate"].worked, found["Surrogate"].result) == ("min(1.0547, 0.8484)", "0.8484")
    assert found["Gradient"].still and "no gradient here; the gradient of the KL remains" in found["Gradient"].note


def test_the_three_kls_and_the_loss_by_hand():
    one = group(1, 0)
    one["completions"][0] |= {"objective": [0.70701] * 2}
    found = lines_of(one, beta=0.04, kl_estimator="k3", kl_placement="loss", entropy_coef=0.0)
    assert [found[f"KL, {key}"].result for key in ("k1", "k2", "k3")] == ["−0.2000", "0.0200", "0.0214"]
    assert found["KL, k3"].note == "in the loss: β × k3 = 0.0400 × 0.0214 = 0.0009"
    assert found["Token's loss"].result == "−0.7062"
    assert lines_of(one, importance_cap=2.0).keys().isdisjoint({"Token's loss"})  # weighed by what the file lacks
    one["completions"][0] |= {"weight": [0.5] * 2}
    weighed = lines_of(one, importance_cap=2.0, beta=0.04, kl_estimator="k3", kl_placement="loss")["Token's loss"]
    assert weighed.formula == "−w S + β KL" and weighed.worked.startswith("−0.5000 × 0.7070")
    assert float(weighed.result.replace("−", "-")) == pytest.approx(-0.7062 + 0.70701 / 2, abs=2e-4)


def test_an_estimate_of_the_kl_with_a_knob_is_worked_out_and_never_another_s_number(monkeypatch):
    family, ratio_k3 = choices.KL_ESTIMATOR, choices.KL_ESTIMATOR["ratio_k3"]
    scaled = KL("scaled", "scaled", "k", worked=lambda of: Worked("a log π", "{scale:g} × {logprobs:b}"))
    weighed = KL("weighed", "weighed", "k", worked=lambda of: Worked("ρ log π", "{ratio} × {logprobs:b}"))
    monkeypatch.setitem(vars(family), "members", (*family.members, scaled, weighed))
    one = group(1, 0, moved=0.4)
    placed = {"beta": 0.1, "kl_placement": "loss", "scale": 3.0}
    found = lines_of(one, kl_estimator="scaled", **placed)
    assert (found["KL, scaled"].worked, found["KL, scaled"].result) == ("3 × (−0.1000)", "−0.3000")
    assert "−0.0300" in found["KL, scaled"].note and found["KL, weighed"].worked == "1.4918 × (−0.1000)"
    one["completions"][0]["kl_estimate"] = [7.0] * 2  # that of the run, whose own has no arithmetic
    found = lines_of(one, kl_estimator=ratio_k3.key, surrogate="gamma_weight", **placed)
    assert found["KL, ratio_k3"].result == "7.0000" and "KL, weighed" not in found
    assert found["KL, scaled"].result == "−0.3000"


@pytest.mark.parametrize("said", ["log({ratio})", "1 / {ratio}", "{advantage} × log({ratio} − 1)"])
def test_arithmetic_that_has_no_result_leaves_the_recorded_number(said):
    """A ratio of a whole sequence may be so small that the file has 0."""
    choice = replace(choices.SURROGATE["clip"], worked=lambda of: Worked("S", said))
    line, = words.lines(choice, words.numbers({}, ratio=0.0, advantage=-0.5), -0.25, Line("Surrogate"))
    assert (line.result, line.worked, line.note) == ("−0.2500", "", choice.label)


def test_a_formula_that_does_not_give_the_recorded_number_is_not_shown():
    one = group(1, 0)
    one["completions"][0] |= {"advantages": [0.3] * 2, "objective": [9.0] * 2, "ratio": [2.0] * 2}
    found = lines_of(one)
    assert [found[name].worked for name in ("Ratio", "Advantage", "Surrogate")] == ["", "", ""]
    assert [found[name].result for name in ("Ratio", "Advantage", "Surrogate")] == ["2.0000", "0.3000", "9.0000"]


@pytest.mark.parametrize("kind, more, worked", [
    ("sequence_mean", {}, "exp(0.8000 / 2)"), ("sequence_sum", {}, "exp(0.8000)"), ("token", {}, "exp(−0.1000 −")])
def test_a_ratio_of_sequences_is_made_from_the_whole_completion(kind, more, worked):
    one = group(1, 0, moved=0.4)
    one["completions"][0]["own_ratio"] = [exp(0.8 if kind == "sequence_sum" else 0.4)] * 2
    assert lines_of(one, ratio=kind)["Ratio"].worked.startswith(worked)


@pytest.mark.parametrize("choice", [choice for choice in choices.SURROGATE if choice.worked],
                         ids=lambda choice: choice.key)
@pytest.mark.parametrize("moved", [0.02, 0.4, -0.4])
def test_the_arithmetic_of_every_surrogate_that_declares_it_is_shown(choice, moved):
    """So a file has every number that the arithmetic asks for."""
    one = group(1, 0, moved=moved)
    row = next(row.key for row in ALGORITHMS.values() if row.loop == "online" and (
        row.knob("surrogate").default == choice.key))
    for which in (0, 1):
        assert lines_of(one, which, **knobs(row, updates_per_batch=2) if choice.needs_ratio else knobs(row))[
            "Surrogate"].worked


def test_a_critic_s_advantage_by_hand():
    one = {"prompt": "a", "completions": [completion(advantages=[0.3, 0.5], rewards=[0.0, 1.0], values=[0.6, 0.5],
                                                     returns=[0.9, 1.0])]}
    found = lines_of(one, **{**knobs("ppo", whiten_advantages=False), "gamma": 1.0})
    assert found["TD error"].worked == "0 + 1.0000 × 0.5000 − 0.6000" and found["TD error"].result == "−0.1000"
    assert found["Advantage"].worked == "0.9000 − 0.6000" and found["Advantage"].result == "0.3000"
    assert credit.baseline(one, one["completions"][0], knobs("ppo")) == 0.6


def test_a_pair_by_hand():
    side = {"tokens": ["a"], "logprobs": [-1.0], "ref_logprobs": [-1.5], "logprob": -1.0, "ref_logprob": -1.5}
    worse = {**side, "logprob": -2.0, "ref_logprob": -1.8}
    pair = {"chosen": side, "rejected": worse, "margin": 0.07}
    found = {line.name: line for line in arithmetic.of_pair(pair, {**knobs("dpo"), "beta": 0.1})}
    assert found["Margin"].worked == "0.1000 × (0.5000 − (−0.2000))" and found["Margin"].result == "0.0700"
    assert found["Loss"].result == "0.6588" and "48 %" in found["Loss"].note
    found = {line.name: line for line in arithmetic.of_pair(pair, knobs("mpo"))}
    assert "Loss" not in found and found["First loss"].result == "0.6588"
    assert "before its weight" in found["First loss"].note and "tie" not in found["First loss"].note
    found = {line.name: line for line in arithmetic.of_pair({**pair, "tie": True}, knobs("xpo"))}
    assert "the loss of a tie is the mean of both orders" in found["First loss"].note
    token = {line.name: line for line in arithmetic.of_side(side, 0)}
    assert token["Log-ratio"].result == "0.5000"
    assert {line.name: line for line in arithmetic.of_example(side, 0, {})}["Token's loss"].result == "1.0000"


def test_the_two_moments_and_a_file_of_an_earlier_version():
    each = completion(met={"logprobs": [-0.45] * 2, "own_ratio": [exp(0.05)] * 2, "cut": ["", ""], "share": [0.1, 0.2]})
    now, then = arithmetic.at(each, MET), arithmetic.at(each, AFTER)
    assert now["logprobs"] == [-0.45] * 2 and now["share"] == [0.1, 0.2]
    assert then["logprobs"] == [-0.5] * 2 and "share" not in then
    old = samples(ratio=1.5)
    shown = payload.inside("groups", old["groups"][0], 0, MET, knobs())
    assert not shown["moments"] and "share" not in [view[0] for view in shown["views"]]
    names = names_of(shown["sides"][0], 0)
    assert {"Ratio", "Surrogate", "KL, k3"} <= {*names} and not {"Gradient", "Gradient share"} & {*names}
    bare = {"prompt": "a", "completions": [{"text": "b", "reward": 1.0, "advantage": 0.5}]}
    assert payload.inside("groups", bare, 0, MET, knobs())["sides"][0]["tokens"] == [] and not scatter.dots(old)
    json.dumps([payload.shelf("groups", old["groups"], knobs()), shown], allow_nan=False)


def test_all_tokens_of_a_long_completion_are_there_and_thinking_is_marked():
    text = ["<", "think>", *["hm "] * 400, "</think>", *["so "] * 96, "7"]
    one = {"prompt": "What is 3 + 4?", "completions": [completion("a" * 500) | {"tokens": text}, completion("b", 0.0)]}
    side = payload.inside("groups", one, 0, AFTER, knobs())["sides"][0]
    assert len(side["tokens"]) == len(side["lines"]) == len(side["values"]["ratio"]) == 500
    assert side["thought"] == (0, 403) and len(side["shapes"]) < 30, "constant parts are sent once"
    assert len(json.dumps(side)) < 600_000


def test_a_row_has_the_ends_of_a_long_completion_and_the_prompt_its_last_turn():
    one = group(1, 0) | {"prompt": "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"}
    one["completions"][1]["text"] = "First this.\nThen that.\nSo 8."
    card = cards.card("groups", one, knobs())
    assert card["asked"]["turn"] == "What is 3 + 4?" and card["asked"]["parts"][0] == ["token", "<|im_start|>"]
    assert [(row["text"], row["ends"]) for row in card["rows"]] == [("ab", []), ("", ["First this.", "So 8."])]


def test_the_scatter_says_how_far_sampler_and_trainer_are_apart():
    each = completion(met={"gap": [2e-3, -0.02]})
    found = scatter.dots({"groups": [{"prompt": "ba=", "completions": [each, completion()]}]})
    assert [(dot.text, dot.sampler, dot.gap) for dot in found] == [("a", -0.5, 2e-3), ("b", -0.5, -0.02)]
    said = scatter.caption(found, {"groups": [{}] * 8, "batch_groups": 32})
    assert "tokens of 8 of 32 groups (with signal first) before" in said
    assert "mean |difference| 0.011 nats/token, largest 0.02." in said
    assert "widest gap is at 'b' after 'ba='" in said and "groups" not in scatter.caption(found, {"groups": [{}] * 8})
    both = scatter.figure(found)
    assert list(both.data[2].y) == [2e-3, -0.02] and list(both.data[1].y) == [-0.498, -0.52]


def test_a_link_opens_the_same_completion_and_nonsense_in_it_does_no_harm(page, lab):
    run_id = seed(lab.store, "finished")
    for place in ("1", "9", "-1", "x", "9" * 5000):
        page("llm", run=run_id, prompt=place, completion=place, colour=place, sort=place, filter=place, moment=place)


def test_the_microscope_opens_the_prompt_that_the_strip_shows(page, lab):
    items = [{**group(1.0, 0.0), "prompt": prompt} for prompt in ("a=", "b=", "c=")]
    assert [view._chosen("groups", items, each["prompt"])[0] for each in items] == [0, 1, 2]
    assert view._chosen("groups", items, "watched=") == cards.telling("groups", items)
    assert [view._elsewhere(items, prompt) for prompt in ("b=", "", "watched=")] == [False, False, True]
    run_id = seed(lab.store, "finished")
    shown = mounted(page("llm", run=run_id, story="b1"), "kinds")
    assert shown["chosen"][0] == 0, "the strip's prompt, of which there are two groups"


def test_of_very_many_tokens_some_are_drawn_and_the_widest_gaps_always():
    many = [scatter.Dot("a", "p", -0.5, gap=1.0 if place == 7777 else 1e-6 * (place % 97)) for place in range(20_000)]
    some = scatter.thinned(many)
    assert len(some) <= scatter.MOST and many[7777] in some and scatter.thinned(many[:9]) == many[:9]
    assert f"20,000 tokens ({len(some):,} drawn) before" in scatter.caption(many, {})
    assert len(scatter.figure(many).data[1].x) == len(some)


SENT = {"text": "ab", "tokens": ["a", "b"], "reward": 1.0, "advantage": 0.5, "logprobs": [-0.1, -0.2],
        "old_logprobs": [-0.3, -0.2], "ref_logprobs": [-0.3, -0.4]}


@pytest.mark.parametrize("left_out, there", [
    ((), ["Log-prob", "Ratio", "KL, k1", "KL, k2", "KL, k3"]), (("ref_logprobs",), ["Log-prob", "Ratio"]),
    (("old_logprobs",), ["Log-prob", "KL, k1", "KL, k2", "KL, k3"]), (("logprobs",), []),
    (("logprobs", "old_logprobs", "ref_logprobs"), [])])
def test_of_another_tool_s_token_there_is_what_was_sent(left_out, there):
    whole = {key: value for key, value in SENT.items() if key not in left_out}
    group = {"prompt": "x", "completions": [whole, {"text": "c", "reward": 0.0, "advantage": -0.5}]}
    inside = payload.inside("groups", group, 0, MET, {})
    side = inside["sides"][0]
    assert names_of(side, 0) == there and side["parts"] == [] and len(side["tokens"]) == 2
    if not left_out:
        assert side["values"]["ratio"] == pytest.approx([exp(0.2), 1.0]), "worked out where it was not sent"
        assert side["values"]["k3"] == pytest.approx([exp(-0.2) - 1 + 0.2] * 2, rel=1e-4)
    text = payload.inside("groups", group, 1, MET, {})["sides"][0]
    assert text["parts"] == [["text", "c"]] and not text["tokens"], "without tokens it is a text"


def test_nobody_is_judged_who_was_not():
    group = {"prompt": "x", "completions": [{"text": "a", "reward": 1.0}, {"text": "b", "reward": 0.0}]}
    assert cards.card("groups", group, {})["facts"] == "reward 0.50 ± 0.71"
    group["completions"][0]["exact"] = True
    assert cards.card("groups", group, {})["facts"].startswith("1 of 1 right")


def test_a_token_s_loss_is_not_said_where_the_kl_to_the_teacher_is_in_it():
    one = group(1, 0)
    one["completions"][0] |= {"objective": [0.0] * 2, "slope": [0.0] * 2, "advantages": [0.0] * 2}
    assert "Token's loss" in lines_of(one) and "Token's loss" not in lines_of(one, single_step=True)
    assert says(lines_of(one, single_step=True)["Gradient"].note, "the advantage is 0", "KL to the teacher")


def test_an_old_sample_says_so_and_its_change_is_that_of_the_step_alone():
    """At sampling the completion had e^−1; before the updates, 0.3 nats more, 50 %; after them 37 %."""
    old = group(1, 0, met={"gap": [0.2, 0.1]}) | {"age": 6, "level": 3}
    said = payload.inside("groups", old, 0, MET, knobs())["said"]
    assert says(said, "level 3", "6 updates ago", "before → after the update", "50 % → 37 %")
    assert "37 % → 37 %" not in said and "ago" not in payload.inside("groups", group(1, 0), 0, MET, knobs())["said"]
