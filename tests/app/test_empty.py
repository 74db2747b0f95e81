"""The page before a run: its words are those of the loss and the pairs that are chosen."""

import pytest

from app.training.empty import trained
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.spec.run_spec import make


@pytest.mark.parametrize(("algorithm", "knobs", "words"), [
    ("dpo", {}, "Only the margin between the sides is trained; nothing is sampled."),
    ("simpo", {"second_loss": "none"}, "Only the margin between the sides is trained; nothing is sampled."),
    ("online_dpo", {}, "Only the margin between the sides is trained; the next pairs are sampled."),
    ("kto", {}, "Each side is trained by itself; nothing is sampled."),
    ("dpo", {"preference_loss": "apo_zero"}, "Each side is trained by itself; nothing is sampled."),
    ("orpo", {}, "The margin between the sides and the chosen side are trained; nothing is sampled."),
    ("dpo", {"second_loss": "sft"}, "The margin between the sides and the chosen side are trained; nothing is "
                                    "sampled.")])
def test_what_is_trained_depends_on_the_loss_and_the_pairs(algorithm, knobs, words):
    assert trained(make(algorithm_key=algorithm, task_key="sort", knobs=knobs).knobs) == words


def test_the_page_says_so(page):
    for algorithm, words in (("online_dpo", "the next pairs are sampled"), ("kto", "trained by itself")):
        assert ALGORITHMS[algorithm].loop == "preference"
        test = page("llm", algorithm=algorithm, task="sort")
        assert words in " ".join(each.proto.body for each in test.get("html"))
