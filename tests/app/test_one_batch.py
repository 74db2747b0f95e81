"""One batch under many algorithms: what is asked, and what the pictures say."""

import pytest

from app.compare.one_batch import charts, view
from app.compare.one_batch.batch import FEW, MOST, ONLINE, Batch, of, to_compare
from labcore.catalog.llm.models import MODELS
from labcore.runs import jobs
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.workers.worker import drive
from tests.app.asking import Answering, batch, trained
from tests.app.seeding import drawn, html, link, ran
from tests.app.test_playground import by_key, said
from tests.llm.tools import TINIER
from tests.words import says

ASKED = {"model": "a@6", "updates": 0}


@pytest.fixture
def asked(lab):
    return Answering(lab.launcher, batch)


def test_the_newest_checkpoint_gives_the_batch_and_each_choice_another_one(page, lab, asked):
    run = trained(lab.store)
    test = page("compare", runs=run, view="batch")
    spec, = asked.asked
    assert spec == {"job": "one_batch", "model": f"{run}@6", "prompts": 16, "group_size": 8, "updates": 0, "seed": 0,
                    "eval_prompts": 512, "algorithms": [*ONLINE[:FEW]]}
    assert "16 prompts × 8 completions" in html(test) and "mean reward 0.50" in html(test)
    assert set(drawn(test)) == {"Cosines between gradients", "Effect of one step"}
    by_key(test.selectbox, "one_batch:model").set_value(f"base:{run}")
    by_key(test.segmented_control, "one_batch:updates").set_value(2)
    ran(test)
    by_key(test.selectbox, "one_batch:stepper").set_value("rloo")
    by_key(test.number_input, "one_batch:seed").set_value(5)
    ran(test)
    wanted = {**spec, "model": f"base:{run}", "updates": 2, "stepper": "rloo", "seed": 5}
    assert asked.asked[-1] == wanted
    assert "after 2 updates by RLOO" in html(test) and "ratio π/π_old" in html(test)
    assert link(test)["batch"] == f"model=base:{run};updates=2;stepper=rloo;seed=5"
    count = len(asked.asked)
    again = page("compare", **link(test))
    assert len(asked.asked) == count and by_key(again.number_input, "one_batch:seed").value == 5


def test_what_the_jobs_really_give_is_shown(page, lab, monkeypatch):
    monkeypatch.setitem(MODELS, "tiny", TINIER)
    run = lab.store.create(make(algorithm_key="sft", task_key="sort", steps=1,
                                knobs={"eval_prompts": 8, "sequences_per_step": 8}), mine=True)
    assert drive(lab.store, run) == "finished"
    Answering(lab.launcher, jobs.do)
    test = page("compare", runs=run, view="batch", batch="prompts=2;group_size=2;eval_prompts=128;algorithms=grpo,ppo")
    assert set(drawn(test)) == {"Cosines between gradients", "Effect of one step"}
    assert "2 prompts × 2 completions" in html(test) and html(test).count('rl-push">') == 2
    assert "PPO" in str(drawn(test)["Effect of one step"])
    test.query_params["view"] = "answers"
    assert "of 64" in html(ran(test))


def test_a_checkpoint_that_was_chosen_stays_when_newer_ones_come(page, lab, asked):
    run = trained(lab.store)
    test = page("compare", runs=run, view="batch", batch=f"model={run}@2")
    (run_folder(run) / "checkpoints" / "step-000009" / "policy").mkdir(parents=True)
    ran(test)
    assert {spec["model"] for spec in asked.asked} == {f"{run}@2"}


def test_while_a_run_goes_the_batch_stays_that_of_the_checkpoint_that_was_asked(page, lab, asked):
    run = trained(lab.store, state="running")
    test = page("compare", runs=run, view="batch")
    (run_folder(run) / "checkpoints" / "step-000009" / "policy").mkdir(parents=True)
    ran(test)
    assert len(asked.asked) == 1 and by_key(test.selectbox, "one_batch:model").value == f"{run}@6"
    next(button for button in test.button if button.label == "Update with newer checkpoints").click()
    ran(test)
    assert asked.asked[-1]["model"] == f"{run}@9" and by_key(test.selectbox, "one_batch:model").value == f"{run}@9"


@pytest.mark.long
def test_two_choices_before_the_redraw_and_the_completions_are_in_the_link(page, lab, asked):
    run = trained(lab.store)
    test = page("compare", runs=run, view="batch")
    by_key(test.number_input, "one_batch:seed").set_value(5)
    by_key(test.segmented_control, "one_batch:updates").set_value(2)
    ran(test)
    assert link(test)["batch"] == f"model={run}@6;updates=2;seed=5"
    count = len(asked.asked)
    by_key(test.selectbox, "one_batch:first").set_value(1)
    ran(test)
    assert link(test)["batch"] == f"model={run}@6;updates=2;seed=5;first=1" and len(asked.asked) == count
    again = page("compare", **link(test))
    assert by_key(again.selectbox, "one_batch:first").value == 1
    by_key(again.number_input, "one_batch:seed").set_value(6)
    ran(again)
    assert "first" not in link(again)["batch"]


def test_what_a_link_says_of_a_batch_and_what_it_cannot():
    batch = Batch("a@2", 2, "ppo", ("ppo", "grpo"), 32, 4, 7, 256)
    assert of(batch.to_text(), ["x", "a@2"]) == batch and Batch().to_text() == ""
    bad = "model=b@1;updates=3;stepper=dpo;prompts=1;group_size=99;seed=x;eval_prompts=7;nothing;=;job=quiz"
    assert of(bad, ["a@2"]) == Batch("a@2")
    many = of(f"algorithms=dpo,{','.join(ONLINE)}", ["a@2"])
    assert many.algorithms == ONLINE[:MOST]


def test_the_algorithms_of_the_runs_are_compared_unless_others_are_chosen(page, lab, asked):
    runs = ",".join(trained(lab.store, key) for key in ("ppo", "grpo", "grpo", "dpo"))
    test = page("compare", runs=runs, view="batch")
    assert asked.asked[-1]["algorithms"] == ["ppo", "grpo"]
    box = by_key(test.multiselect, "one_batch:algorithms")
    assert box.value == ["ppo", "grpo"]
    box.set_value(["ppo", "grpo", "rloo"])
    ran(test)
    assert asked.asked[-1]["algorithms"] == ["ppo", "grpo", "rloo"]
    assert link(test)["batch"].endswith(";algorithms=ppo,grpo,rloo")
    by_key(test.multiselect, "one_batch:algorithms").set_value([])
    assert "algorithms" not in link(ran(test))["batch"]
    assert by_key(test.multiselect, "one_batch:algorithms").value == ["ppo", "grpo"]


def test_a_single_algorithm_is_compared_with_a_few_others():
    assert to_compare(["dapo"]) == ("dapo", *ONLINE[:FEW - 1]) and to_compare(["dpo"]) == ONLINE[:FEW]
    assert to_compare(ONLINE) == ONLINE[:MOST]


def test_a_run_without_rewards_gives_no_batch(page, lab, asked, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}')
    own = trained(lab.store, "dpo", task="preferences", data=str(path))
    assert "preference files have none" in page("compare", runs=own, view="batch").info[0].value
    assert not asked.asked


def test_terms_that_no_single_token_decides_are_named():
    """The single-step term, and the entropy bonus."""
    rows = [{"label": "GRPO", "left_out": []}, {"label": "MiniLLM", "left_out": ["single-step term", "entropy bonus"]}]
    assert "the single-step term of MiniLLM, the entropy bonus of MiniLLM" in view._left_out(rows)
    assert not view._left_out(rows[:1])


def test_a_sentence_names_a_few_pairs():
    labels = [f"A{place}" for place in range(MOST)]
    cosines = [[0.5 if a + b == MOST - 1 else 0.99 for b in range(MOST)] for a in range(MOST)]
    found = {"algorithms": [{"label": label, "unclipped": None} for label in labels], "cosines": cosines, "updates": 0,
             "critic": None}
    sentence, = charts.said(found)
    assert "A0 with A1, A0 with A2, A1 with A2 and 21 more pairs point" in sentence
    assert sentence.endswith("A3 with A4, A2 with A5, A1 with A6 and 1 more pair least (0.50).")


def test_while_it_is_computed_the_page_says_so(page, lab, asked):
    asked.reply = lambda spec: None
    assert "each algorithm computes its gradient" in said(page("compare", runs=trained(lab.store), view="batch"))


def test_the_heat_map_has_its_numbers_and_the_bars_their_norms():
    heat, bars = charts.cosine_figure(batch(ASKED)).data
    assert [list(row) for row in heat.text] == [["1.00", "–"], ["–", "–"]] and (heat.zmin, heat.zmax) == (-1, 1)
    assert list(bars.x) == [0.7, 0.0] and list(bars.y) == ["GRPO", "REINFORCE"]


def test_effects_are_drawn_with_their_uncertainty_and_no_step_where_there_is_no_gradient():
    traces = charts.effect_figure(batch(ASKED)).data
    assert [trace.name for trace in traces] == ["GRPO", "GRPO", "REINFORCE"]
    assert traces[0].error_y.array[0] == pytest.approx(0.0196) and traces[0].y == (0.05,)
    table = charts.effect_table(batch(ASKED))
    assert "no gradient, so no step" in table and "+0.0500 ± 0.0100" in table and "−0.0400 ± 0.0100" in table


def test_pushes_have_signs_and_an_end():
    table = charts.push_table(batch(ASKED), 0)
    assert "+1.50" in table and "−0.50" in table and ">end<" in table and "&lt;" in table
    assert "ratio" not in table and "ratio" in charts.push_table(batch({**ASKED, "updates": 1}), 0)
    assert ">end<" not in charts.push_table(batch(ASKED), 1)  # it was cut


def test_words_say_why_algorithms_coincide_and_what_the_clip_does():
    on_policy, after = (" ".join(charts.said(batch({**ASKED, "updates": count}))) for count in (0, 1))
    assert says(on_policy, "ratios are 1", "clip of GRPO", "no effect")
    assert "GRPO 25 % (cosine 0.50 to its unclipped gradient)" in after and "All ratios" not in after
    assert "No algorithm has a gradient" in on_policy  # the fake has no pair of gradients
    assert "fitted to 8 other batches" in on_policy and "explains 10 % of the variance" in on_policy


@pytest.mark.parametrize("cosines, words", [
    ((0.994, 0.6, 0.988), "GRPO with RLOO and RLOO with PPO point most nearly the same way (cosine 0.99), "
                          "GRPO and PPO least (0.60)."),
    ((0.994, 0.3, 0.304), "GRPO and RLOO point most nearly the same way (cosine 0.99), "
                          "GRPO with PPO and RLOO with PPO least (0.30)."),
    ((0.994, 0.99, 0.988), "GRPO, RLOO and PPO agree equally: the cosine between any two is 0.99."),
    ((0.994, None, None), "The cosine between GRPO and RLOO is 0.99.")])
def test_pairs_that_show_one_figure_are_named_together(cosines, words):
    ab, ac, bc = cosines
    rows = [{"label": label, "unclipped": None} for label in ("GRPO", "RLOO", "PPO")]
    found = {"algorithms": rows, "cosines": [[1, ab, ac], [ab, 1, bc], [ac, bc, 1]], "updates": 0, "critic": None}
    assert charts.said(found) == [words]


def test_a_part_of_a_batch_s_link_that_cannot_be_is_said(page, lab, asked):
    test = page("compare", runs=trained(lab.store), view="batch", batch="model=RUN@3;updates=99")
    told = [each.value for each in test.warning]
    assert [text in each for text, each in zip(("updates='99'", "model='RUN@3'"), told, strict=True)] == [True, True]
