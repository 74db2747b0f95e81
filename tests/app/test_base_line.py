"""Where the base model comes from, and how long SFT of it takes: sentences, the switch, and the charts to come."""

import time
from dataclasses import replace

import pytest

import app.lab
from app.training import live
from app.training.base_line import time_of, waits_for_sft, words
from app.training.chart_data import payload
from app.training.feed import Feed
from app.training.status_line import line
from labcore.errors import LabError
from labcore.runs.files import bases
from labcore.runs.places import going, holders
from labcore.runs.spec.run_spec import base_spec, make
from labcore.runs.spec.session import Record
from tests.app.seeding import html, ran, seed
from tests.words import says


def sort(**knobs):
    return make(algorithm_key="grpo", task_key="sort", knobs=knobs)


def captions(test) -> str:
    return " ".join(caption.value for caption in test.caption)


def taught(store, spec, seconds: float, steps: int):
    run_id = store.create(spec, mine=True)
    store.set_state(run_id, "running")
    store.append(run_id, Record(steps, 1, {}), seconds)
    store.set_state(run_id, "finished")


def test_the_sentence_says_where_it_comes_from():
    spec, sft = sort(), base_spec(sort())
    assert says(words(spec, sft, comes_with_lab=True), "tiny", "SFT on sort", "comes with the lab")
    assert says(words(spec, sft), "tiny", "SFT on sort", "earlier run")
    assert says(words(spec, sft, True, "about 9 s"), "tiny", "SFT on sort", "about 9 s")
    assert says(words(sort(sft_steps=0), None), "tiny", "random weights")
    given = make(algorithm_key="grpo", task_key="sort", model="org/model")
    assert says(words(given, None), "org/model", "as it is")


def test_a_time_is_one_that_was_measured_here(lab):
    spec = base_spec(sort(letters=5))

    def told():
        return time_of(lab.store.runs("finished"), spec)
    assert told() == "at most 400 steps"
    taught(lab.store, base_spec(sort(letters=7)), 4.0, 100)
    assert says(told(), "at most 400 steps", "16 s", "measured on this machine")
    taught(lab.store, spec, 12.0, 150)
    assert told() == "about 12 s, measured on this machine"


def test_the_switch_is_there_where_there_is_a_base_is_off_and_is_part_of_the_link(page, lab):
    test = page("llm")
    assert "comes with the lab" in captions(test)
    [box] = [box for box in test.checkbox if box.label == "Show the warm-up"]
    assert box.value is False
    box.check()
    ran(test)
    assert "trained by SFT on sort first" in captions(test)
    assert "1" in test.query_params["warm_up"]
    next(button for button in test.button if button.label == "Run").click()
    ran(test)
    run, = lab.store.runs()
    queued, = lab.store.events_after(run.id)
    assert queued.payload == {"warm_up": True} and run.spec == sort()
    assert "They take effect once GRPO starts." in captions(test)


def test_a_link_opens_with_the_warm_up_and_a_base_to_be_trained_has_no_switch(page):
    [box] = [box for box in page("llm", warm_up="1").checkbox if box.label == "Show the warm-up"]
    assert box.value is True
    test = page("llm", letters="5")
    assert "trained by SFT on sort first (at most 400 steps)" in captions(test)
    assert not [box for box in test.checkbox if box.label == "Show the warm-up"]


@pytest.mark.parametrize("knobs, warm_up, waits", [({}, False, False), ({}, True, True), ({"letters": 5}, False, True),
                                                   ({"sft_steps": 0}, False, False)])
def test_the_knobs_wait_while_sft_comes_first(lab, knobs, warm_up, waits):
    run_id = lab.store.create(sort(**knobs), mine=True, warm_up=warm_up)
    assert waits_for_sft(lab.store.run(run_id), lab.store) is waits
    lab.store.set_state(run_id, "running")
    assert not waits_for_sft(lab.store.run(run_id), lab.store)


def test_they_do_not_wait_for_a_base_that_was_made_here(lab):
    run_id = lab.store.create(sort(letters=5), mine=True)
    (bases.folder(base_spec(sort(letters=5)).hash()) / "model").mkdir(parents=True)
    assert not waits_for_sft(lab.store.run(run_id), lab.store)


def test_the_charts_of_rl_stand_ready_while_sft_runs_and_go_when_it_is_over(page, lab):
    run_id = seed(lab.store, "starting", knobs={"letters": 5})
    lab.store.set_base(run_id, seed(lab.store, "running", algorithm="sft"), cached=False)
    test = page("llm", run=run_id)
    assert "Stage 2 of 2: GRPO" in html(test) and "KL to the reference" in html(test)
    assert "They take effect once GRPO starts." in captions(test)
    lab.store.set_state(run_id, "running")
    test = ran(test)
    assert "Stage 2 of 2" not in html(test) and "take effect" not in captions(test)


def test_charts_say_whether_their_first_point_is_still_to_come(lab):
    def awaited(run_id, ended=False):
        run = lab.store.run(run_id)
        feed = Feed(run.spec)
        feed.take(lab.store.steps_after(run_id), [])
        return payload({run_id: feed}, full=True, x="updates", smooth=0, ended=ended)["awaited"]
    assert awaited(seed(lab.store, "starting")) and not awaited(seed(lab.store))
    assert not awaited(seed(lab.store, "starting"), ended=True)


def test_the_first_step_is_waited_for_a_moment_unless_it_is_there_or_the_run_has_ended(lab, monkeypatch):
    waited = []
    made = seed(lab.store, "starting"), seed(lab.store, "running"), seed(lab.store, "failed")
    run_id = made[0]

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            lab.store.append(run_id, Record(1, 64, {"reward": 0.5}), 0.1)
    monkeypatch.setattr(live.time, "sleep", sleep)
    live._await_first_step(run_id)
    assert len(waited) == 3 and lab.store.run(run_id).step == 1
    for other in made[1:]:
        live._await_first_step(other)
    assert len(waited) == 3
    live._await_first_step("deleted-meanwhile")
    monkeypatch.setattr(live, "FIRST_SECONDS", 0)
    live._await_first_step(seed(lab.store, "starting"))
    assert len(waited) == 3


def test_a_run_that_is_taken_up_again_while_its_page_is_drawn_is_followed(page, lab, monkeypatch):
    run_id, looks = seed(lab.store, "stopped"), []

    def look(run):
        looks.append(run.state)
        if len(looks) == 1:
            lab.store.requeue(run_id)
    monkeypatch.setattr(live.ghost, "look", look)
    page("llm", run=run_id)
    assert looks[:2] == ["stopped", "queued"]


def test_the_lab_opens_before_the_page_and_leaves_it_to_the_page_to_say_what_is_wrong(monkeypatch):
    opened = []

    def broken():
        opened.append(1)
        raise LabError("The store cannot be read.")
    monkeypatch.setattr(app.lab, "lab", broken)
    app.lab.warm_up()
    assert opened


def test_a_queued_run_says_what_it_waits_for(lab):
    run = lab.store.run(lab.store.create(sort()))

    def said(**changed):
        return line(replace(run, **changed), Feed(run.spec))
    assert "starting a worker" in said(created=time.time()) and "when a place is free" not in said()
    assert "loading PyTorch" in said(created=time.time() - 1)
    assert "starting a worker" in said(created=time.time() - 1, started=time.time()), "it is resumed"
    waiting = said(message="waiting for a free place (RL_LAB_MAX_RUNS=2)", created=time.time() - 1)
    assert "when a place is free" not in waiting and "PyTorch" not in waiting, "said once"


def test_a_queued_run_names_the_runs_that_hold_the_places_and_links_them(lab):
    """As they are now, three at most; none where it cannot be known which."""
    run_id = lab.store.create(sort())
    lab.store.set_waiting({run_id: 2})
    run = lab.store.run(run_id)

    def said():
        return line(run, Feed(run.spec), holders=holders(run, going(lab.store, [run])))
    assert "waiting for a free place (RL_LAB_MAX_RUNS=2)" in said()
    first = lab.store.create(sort(), mine=True)
    lab.store.set_state(first, "paused")
    assert "</a>" not in said(), "of two places one: another lab's runs hold the other, or it is free by now"
    second = lab.store.create(sort(), mine=True)
    lab.store.set_state(second, "running")
    shown = said()
    assert f'<a href="llm?run={first}"' in shown and ">GRPO sort #3</a> (running) hold all (RL_LAB_MAX_RUNS=2)" in shown
    assert "place: GRPO sort #2 (paused) and GRPO sort #3 (running) hold all" in shown, "in the title, without tags"
    for _ in range(3):
        lab.store.set_state(lab.store.create(sort(), mine=True), "running")
    assert "</a>" not in said()
    for places, others in ((5, "and 2 others hold all"), (1, "")):
        lab.store.set_waiting({run_id: places})
        run = lab.store.run(run_id)
        assert others in said() and ("</a>" in said()) == bool(others)
