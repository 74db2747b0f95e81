"""The Playground's blind vote: what it hides, what it tells, and what becomes of it."""

from itertools import combinations

import pytest

from app.playground import vote
from app.playground.models import titles
from labcore.runs.files.paths import home
from labcore.runs.spec.model_names import Model
from labcore.tasks import votes
from labcore.tasks.preferences import Preferences
from tests.app.asking import answers, trained
from tests.app.seeding import html, link, ran
from tests.app.test_playground import by_key, said, shown


def ballot(test) -> list[str]:
    """What stands on the two cards."""
    return [element.proto.body for element in test.get("html") if "rl-ballot" in element.proto.body
            and "<style>" not in element.proto.body]


def test_a_vote_is_blind_until_it_is_cast_and_becomes_a_pair(page, lab, grpo, asked):
    test = page("playground", runs=f"base:{grpo},{grpo}", view="vote")
    cards = ballot(test)
    assert len(cards) == 2 and not any(grpo in card or "GRPO" in card or "Base" in card for card in cards)
    better = next(place for place, card in enumerate(cards) if "abc" in card)
    test.button(key=f"vote:{better}").click()
    cards = ballot(ran(test))
    assert "your choice" in cards[better] and f"{grpo}@6" in cards[better] and "&lt;b&gt;" in cards[1 - better]
    task = Preferences({}, votes.pairs_file())
    assert [(row.prompt, row.chosen, row.rejected) for row in task.rows] == [("cba0=", "abc0", "<b>")]
    assert votes.tally(f"{grpo}@6", f"base:{grpo}").first == 1
    assert "in 1 of 1 vote: 100 %" in html(test) and "95 % interval 2.5 % to 100 %" in html(test)
    assert "No winner so far" in html(test)
    test.button(key="vote:next").click()
    assert "cba1=" in html(ran(test)) and "your choice" not in html(test)
    test.button(key="vote:tie").click()
    assert "1 tie" in html(ran(test)) and votes.count() == 1


def three(spec):
    """Answers of which each model has its own."""
    found = answers(spec)
    for place, column in enumerate(found["columns"]):
        for row, answer in enumerate(column["answers"]):
            answer["text"] = f"{place}{row}"
    return found


@pytest.fixture
def alike(lab, asked):
    """A base and two runs of one algorithm that differ in β."""
    asked.reply = three
    one, other = trained(lab.store, knobs={"beta": 0.1}), trained(lab.store, knobs={"beta": 0.3})
    return f"base:{one}", one, other


def test_models_of_one_algorithm_are_told_apart_by_what_differs(page, lab, alike, asked):
    base, one, other = alike
    assert titles([base, f"{one}@6", f"{other}@6"]) == ["Base, by SFT", "GRPO β 0.1, step 6", "GRPO β 0.3, step 6"]
    assert titles([base, f"{one}@2", f"{one}@6"]) == ["Base, by SFT", "GRPO, step 2", "GRPO, step 6"]
    seeds = [trained(lab.store, seed=place) for place in range(2)]
    assert titles([f"{run}@6" for run in seeds]) == ["GRPO seed 0, step 6", "GRPO seed 1, step 6"]
    asked.reply = answers
    drawn = shown(page("playground", runs=",".join(alike)))
    assert [column["title"] for column in drawn["columns"]][1:] == ["GRPO β 0.1, step 6", "GRPO β 0.3, step 6"]


def test_a_vote_among_three_is_blind_and_tells_all_pairs(page, lab, alike, asked, monkeypatch):
    monkeypatch.setattr(vote.secrets, "token_hex", lambda size: "a")
    test, before = page("playground", runs=",".join(alike), view="vote"), ""
    for _ in range(6):
        own = [element.proto.body for element in test.get("html") if "preferred to" in element.proto.body]
        assert "".join(own) == before, "what is told does not depend on the question"
        assert not any(name in card for card in ballot(test) for name in (*alike, "GRPO", "Base", "rl-letter"))
        test.button(key="vote:0").click()
        cards = ballot(ran(test))
        assert all("rl-letter" in card for card in cards)
        told, = [element.proto.body for element in test.get("html") if "preferred to" in element.proto.body]
        assert told != before
        before = told
        test.button(key="vote:next").click()
        ran(test)
    assert before.count("preferred to") == 3 and "<b>GRPO β 0.1, step 6</b>" in before
    assert all(f">{letter}</span>" in before for letter in "ABC") and "rl-share" not in before
    counted = [votes.tally(*pair) for pair in combinations((alike[0], f"{alike[1]}@6", f"{alike[2]}@6"), 2)]
    assert sum(found.decided for found in counted) == 6 and all(found.decided for found in counted)
    assert votes.count() == 6


def test_every_pair_answers_as_often_and_in_an_order_of_chance():
    turns = vote._turns(3, 15, "a")
    assert {turns.count(pair) for pair in combinations(range(3), 2)} == {5}
    assert turns == vote._turns(3, 15, "a") != vote._turns(3, 15, "b")
    assert vote._turns(2, 3, "a") == [(0, 1)] * 3


def test_two_models_of_the_same_name_keep_their_letters(page, lab, asked):
    asked.reply = three
    runs = [trained(lab.store) for _ in range(2)]
    test = page("playground", runs=",".join(runs), view="vote")
    test.button(key="vote:0").click()
    ran(test)
    told, = [element.proto.body for element in test.get("html") if "preferred to" in element.proto.body]
    assert ">A</span>" in told and ">B</span>" in told and "rl-share" in told
    assert sorted(words[:1] for words in test.selectbox(key="vote:start").options) == ["A", "B"]


def test_the_second_of_two_fast_votes_does_not_count(page, lab, grpo, asked):
    test = page("playground", runs=f"base:{grpo},{grpo}", view="vote")
    test.button(key="vote:0").click()
    test.button(key="vote:1").click()
    ran(test)
    assert votes.count() == 1


def test_next_goes_on_from_the_question_that_it_stands_under(monkeypatch):
    state = {"of": (), "seed": 3, "round": 0, "choice": 0}
    monkeypatch.setattr(vote.st, "session_state", {vote.STATE: state})
    for _ in range(2):
        vote._next(5, ((), 3, 0))
    assert state["round"] == 1


def test_sides_are_shuffled(page, lab, grpo, asked):
    places = set()
    test = page("playground", runs=f"base:{grpo},{grpo}", view="vote")
    for _ in range(12):
        places.add(next(place for place, card in enumerate(ballot(test)) if "abc" in card))
        test.button(key="vote:tie").click()
        ran(test)
        test.button(key="vote:next").click()
        ran(test)
        if len(places) == 2:
            break
    assert places == {0, 1}


def test_equal_answers_are_not_voted_on(page, lab, grpo, asked):
    def alike(spec):
        found = answers(spec)
        return {**found, "columns": [{**column, "answers": found["columns"][0]["answers"]}
                                     for column in found["columns"]]}
    asked.reply = alike
    test = page("playground", runs=f"base:{grpo},{grpo}", view="vote")
    assert "identical answers" in said(test) and not ballot(test)
    first = asked.asked[-1]["seed"]
    test.button(key="vote:others").click()
    ran(test)
    assert asked.asked[-1]["seed"] == first + 1


def test_one_model_cannot_be_voted_on(page, lab, grpo, asked):
    assert "needs two different models" in said(page("playground", runs=f"{grpo},{grpo}@6", view="vote"))


def test_my_own_prompt_every_time(page, lab, grpo, asked):
    test = page("playground", runs=f"base:{grpo},{grpo}", view="vote", prompt="bca=")
    assert "prompt" not in asked.asked[-1] and asked.asked[-1]["job"] == "quiz"
    by_key(test.toggle, "vote:own").set_value(True)
    ran(test)
    assert (asked.asked[-1]["prompt"], asked.asked[-1]["answer"]) == ("bca=", None)
    assert link(test)["own"] == "1" and by_key(page("playground", **link(test)).toggle, "vote:own").value


def test_the_votes_open_a_dpo_run_with_the_file_and_the_model_in_place(page, lab, grpo, asked):
    test = page("playground", runs=f"base:{grpo},{grpo}", view="vote")
    test.button(key="vote:0").click()
    ran(test)
    test.button(key="vote:train").click()
    ran(test)
    assert ": 1 pair." in said(test) and "preferences.jsonl" in said(test)
    assert str(home()) not in said(test), "people read the names of files and models"
    assert link(test) == {"algorithm": "dpo", "task": "preferences", "model": f"{Model(grpo).run}@6"}
    test.button(key="do:Run").click()
    ran(test)
    spec = lab.store.runs(limit=1)[0].spec
    assert (spec.algorithm, spec.task) == ("dpo", "preferences") and spec.data.endswith("preferences.jsonl")
    assert spec.model.endswith(f"{Model(grpo).run}/checkpoints/step-000006/policy")
    assert str(home()) not in said(page("llm", run=lab.store.runs(limit=1)[0].id))
