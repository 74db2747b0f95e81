"""Where rewards come from, in words: of every source, and beside the knobs as they are."""

from app.training import reward_line
from labcore.catalog import choices
from labcore.catalog.kinds import algorithm
from labcore.runs.spec.run_spec import every_knob
from tests.app.seeding import seed

VALUES = {key: knob.default for key, knob in every_knob().items()}


def test_every_source_but_the_verifier_is_said():
    said = {source: reward_line.words({**VALUES, "reward_source": source}) for source in choices.REWARD.names}
    assert [source for source, words in said.items() if not words] == ["verifier"]
    assert len({*said.values()}) == len(said) and not any("{" in words for words in said.values())


def captions(test):
    return " ".join(each.value for each in test.caption)


def test_two_named_rewards_have_their_weights_beside_them(page, lab):
    test = page("llm", algorithm="gdpo", format_weight="0.5")
    assert "Rewards: 1 × correct" in captions(test) and "0.5 × format" in captions(test)
    for key in ("correct_weight", "format_weight"):
        assert not algorithm("gdpo").knob(key).advanced and algorithm("grpo").knob(key).advanced


def test_the_planted_hole_is_said_before_and_beside_its_run(page, lab):
    assert "a hole to exploit" in captions(page("llm", reward_source="order_only"))
    run_id = seed(lab.store, "running", knobs={"reward_source": "order_only"})
    assert "Both rewards are drawn" in captions(page("llm", run=run_id)), "no gold in these rows"
