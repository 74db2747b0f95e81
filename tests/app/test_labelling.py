"""You are the labeller: each label is kept, how often it agrees with gold is said, and a model learns from it."""

import pytest
from streamlit.testing.v1 import AppTest

from app.llm import chain, labelling
from labcore.runs.files import uploads
from labcore.runs.spec.run_spec import make
from labcore.tasks import labels
from tests.app.asking import Answering
from tests.app.seeding import html, link
from tests.app.test_rail import trained
from tests.words import says

SPEC = make(algorithm_key="grpo", task_key="reviews")


def pair(number, a="good and fun", b="so dull"):
    return {"prompt": f"the plot {number} was ", "a": a, "b": b, "a_truncated": False, "b_truncated": True,
            "answer": "", "line": None}


@pytest.fixture
def asked(lab):
    return Answering(lab.launcher, lambda spec: {"model": "", "pairs": [pair(at) for at in range(3)]})


def button(test: AppTest, key: str):
    return next(each for each in test.button if each.key == key)


def test_each_click_is_kept_and_a_skip_is_none(page, asked):
    test = page("llm", task="reviews", label="1")
    assert asked.asked[0]["job"] == "pairs_to_label" and asked.asked[0]["seed"] == 1
    assert "the plot 0 was" in html(test) and "(cut)" in html(test) and "Pair 1 of 3, from the task" in html(test)
    assert button(test, "label:train").disabled
    button(test, "label:b").click().run()
    button(test, "label:skip").click().run()
    assert "the plot 2 was" in html(test)
    assert [(row["prompt"], row["pick"]) for row in labels.rows(SPEC)] == [("the plot 0 was ", "b")]
    button(test, "label:a").click().run()
    assert "Pair 1 of 3" in html(test) and asked.asked[-1]["seed"] == 2, "the next round asks for others"
    again = page("llm", task="reviews", label="1")
    assert says(button(again, "label:train").label, "reward model", "2 labels")
    assert asked.asked[-1]["seed"] == 3, "a new tab begins with others"


def test_what_was_labelled_trains_a_reward_model(page, asked, lab):
    labels.add(SPEC, pair(0), "a")
    test = page("llm", task="reviews", label="1")
    button(test, "label:train").click().run()
    assert not test.exception and "label" not in link(test)
    run = lab.store.run(link(test)["run"])
    assert run.spec.row.loop == "reward_model" and run.spec.knobs["labelled_share"] == 1.0
    lines = uploads.file_at(run.spec.knobs["labelled_pairs"]).read_text()
    assert '"chosen": "good and fun", "rejected": "so dull"' in lines


def test_pairs_come_from_the_policy_of_the_rl_run_that_is_open(page, asked, lab):
    model = trained(lab.store, make(algorithm_key="reward_model", task_key="reviews", steps=5))
    run = trained(lab.store, chain.rl_spec(model, "grpo", str))
    test = page("llm", run=run.id, label="1")
    assert asked.asked[0]["model"] == f"{run.id}@1"
    button(test, "label:a").click().run()
    button(test, "label:train").click().run()
    found = lab.store.run(link(test)["run"]).spec
    assert found.row.loop == "reward_model" and found.knobs["labelled_share"] == 0.5


def rows(*picks):
    return [{**pair(at), "pick": pick} for at, pick in enumerate(picks)]


def test_agreement_with_gold_is_said_from_ten_labels_on():
    assert says(labelling.words(SPEC, rows("a")), "1 labelled", "saved at once")
    tie = {**pair(0, "good", "fun"), "pick": "b"}
    assert labelling.agreement(SPEC, [*rows("a", "b", "a"), tie]) == (2, 3)
    assert says(labelling.words(SPEC, [*rows(*"aaaaaaaab"), tie]), "8 of 9", "ties: 1")


def test_own_pairs_have_no_gold(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}')
    own = make(algorithm_key="dpo", task_key="preferences", data=str(path))
    assert labelling.words(own, rows(*"a" * 12)) == "12 labelled."
