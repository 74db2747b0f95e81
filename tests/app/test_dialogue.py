"""Episodes as dialogues: which two are shown, what each turn earned, and that nothing a model wrote is markup."""

import numpy as np

from app import dialogue
from app.playground import play
from app.playground.place import Place
from app.tokens import own
from labcore.tasks.environment import Begun
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
    assert chosen is samples["groups"][1] and shown == [SLOW, LOST]
    assert dialogue.telling({"groups": [group(SLOW, SLOW)]})[1] == [SLOW]
    page = dialogue.page({**chosen, "row": {"secret": 4, "walls": [[1, 2]]}}, shown, 7)
    assert "Hidden start: secret 4. Blue" in page and "Hidden" not in dialogue.page(chosen, shown, 7)
    assert dialogue.telling({"groups": [{"prompt": "a", "completions": [{"text": "b"}]}]}) is None


def test_a_card_has_every_turn_with_its_reward_and_no_markup_of_theirs():
    page = dialogue.card("<i>", episode(("<b>", "a & b", -0.25)))
    assert "&lt;i&gt;" in page and "<b>" not in page.replace("<b>✗ out of turns</b>", "") and "a &amp; b" in page
    assert "−0.25" in page and "rl-fined" in page and "1 turn<" in page
    assert "✓ solved" in dialogue.card("1-7?", SLOW) and "reward +1.00" in dialogue.card("1-7?", SLOW)
    moved = dialogue.card("1-7?", SLOW | {"old_logprobs": [-1.0, 0.0, -1.0], "logprobs": [-0.5, 0.0, -0.5]})
    assert "probability 14 % → 37 %" in moved and "probability" not in dialogue.card("1-7?", SLOW)


def test_an_episode_that_is_being_played_has_no_end_yet():
    page = dialogue.card("1-7?", {**episode(), "open": True}, "you")
    assert "being played" in page and not any(sign in page for sign in ("✗", "✓", "out of turns"))


def test_a_player_gets_the_episode_that_the_model_gets():
    task = Guess(KNOBS)
    first, again = (play.of(task, 3, turns) for turns in ([], [Begun("1"), Begun("2")]))
    assert first.first == "1-7?" and len(again.moves) == 2
    [problem] = task.problems(1, np.random.default_rng((3, 2**32 + 1)))
    right = play.of(task, 3, [Begun(str(problem.columns["secret"]))])
    assert right.done and play.pictured(right)["exact"] and not play.pictured(first)["exact"]


def test_only_own_tokens_are_counted():
    assert own({"observed": [False, True, False]}, [1, 2, 3]) == [1, 3] and own({}, (1, 2)) == [1, 2]


def test_an_episode_is_taken_over_from_any_turn_and_names_who_wrote_and_answered():
    task = Guess(KNOBS)
    kept = play.Kept("here")
    for text, by in (("1", play.MODEL), ("2", play.YOU), ("3", play.MODEL)):
        kept.add(text, by)
    kept.back(3)
    kept.turns[-1] = kept.turns[-1]._replace(instead="warm")
    played = play.of(task, 0, kept.turns, {"secret": 7, "highest": 7})
    shown = dialogue.card(played.first, play.pictured(played, kept.turns), kept.by)
    assert [move.observation for move in played.moves] == ["higher", "warm"] and shown.count("<small>you</small>") == 2
    assert shown.index("<small>model</small>") < shown.index("<small>you</small>")


def test_an_episode_begins_anew_for_another_environment_and_a_turn_taken_back_is_yours(monkeypatch):
    monkeypatch.setattr(play.st, "session_state", {})
    kept = play._kept(("guess", {"largest": 7}, 0, None, None), None)
    kept.add("1", play.YOU)
    kept.asked = 1
    assert play._kept(("guess", {"largest": 7}, 0, None, None), None) is kept
    kept.back(1)
    assert kept.asked == 0 and not kept.turns
    kept.add("1", play.YOU)
    assert not play._kept(("lookup", {}, 0, None, None), None).turns


def test_a_stored_episode_begins_with_its_turns_and_its_hidden_row(monkeypatch):
    stored = {"groups": [{"prompt": "1-7?", "row": {"secret": 5, "highest": 7}, "completions": [SLOW, LOST]}]}
    monkeypatch.setattr(play.files, "read", lambda run, kind, step: stored if step == 3 else None)
    monkeypatch.setattr(play.st, "info", lambda *given, **named: None)
    row, turns = play._stored(Place(models=("grpo-guess-1a2b",), replay=(3, 0, 1)))
    assert [move.observation for move in play.of(Guess(KNOBS), 0, turns, row).moves] == ["higher", "correct"]
    for absent in ((4, 0, 0), (3, 1, 0), (3, 0, 2)):
        assert play._stored(Place(models=("grpo-guess-1a2b",), replay=absent)) is None
