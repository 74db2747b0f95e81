"""Episodes as dialogues: which two are shown, what each turn earned, and that nothing a model wrote is markup."""

import numpy as np

from app import dialogue
from app.playground import play
from app.tokens import own
from labcore.tasks.guess import Guess

KNOBS = {"largest": 7, "max_turns": 3, "turn_tokens": 3, "observation_length": 64}


def episode(*turns, exact=False, **more):
    return {"text": "", "exact": exact, "ended": exact, "truncated": False, "advantage": 0.5, "turns": [
        {"text": text, "observation": seen, "reward": reward} for text, seen, reward in turns], **more}


def group(*completions):
    return {"prompt": "1-7?", "completions": [*completions]}


LOST = episode(("4", "higher", 0.0), ("5", "higher", -0.25))
WON, SLOW = episode(("4", "correct", 1.0), exact=True), episode(("2", "higher", 0.0), ("4", "correct", 1.0), exact=True)


def test_the_group_whose_rewards_differ_most_shows_its_best_and_its_worst():
    samples = {"groups": [group(SLOW, SLOW), group(SLOW, LOST, WON), {"prompt": "a", "completions": [{"text": "b"}]}]}
    chosen, shown = dialogue.telling(samples)
    assert chosen is samples["groups"][1] and shown == [WON, LOST]
    assert dialogue.telling({"groups": [group(SLOW, SLOW)]})[1] == [SLOW]
    assert dialogue.telling({"groups": [{"prompt": "a", "completions": [{"text": "b"}]}]}) is None


def test_a_card_has_every_turn_with_its_reward_and_no_markup_of_theirs():
    page = dialogue.card("<i>", episode(("<b>", "a & b", -0.25)))
    assert "&lt;i&gt;" in page and "<b>" not in page.replace("<b>✗ not ended</b>", "") and "a &amp; b" in page
    assert "−0.25" in page and "rl-fined" in page and "1 turn<" in page
    assert "✓ solved" in dialogue.card("1-7?", SLOW) and "+1.00" in dialogue.card("1-7?", SLOW)


def test_an_episode_that_is_being_played_has_no_end_yet():
    page = dialogue.card("1-7?", {**episode(), "open": True}, "you")
    assert "being played" in page and not any(sign in page for sign in ("✗", "✓", "not ended"))


def test_a_player_gets_the_episode_that_the_model_gets():
    task = Guess(KNOBS)
    first, again = (play.of(task, 3, turns) for turns in ([], ["1", "2"]))
    assert first.first == "1-7?" and len(again.moves) == 2
    [problem] = task.problems(1, np.random.default_rng((3, 2**32 + 1)))
    right = play.of(task, 3, [str(problem.columns["secret"])])
    assert right.done and play.pictured(right)["exact"] and not play.pictured(first)["exact"]


def test_only_own_tokens_are_counted():
    assert own({"observed": [False, True, False]}, [1, 2, 3]) == [1, 3] and own({}, (1, 2)) == [1, 2]
