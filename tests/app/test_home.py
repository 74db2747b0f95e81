"""Home: the clip and its live run, the cards of the sections, and the way back to the last run."""

import json
import re
from dataclasses import replace
from urllib.parse import unquote

import pytest

from app import home, listing
from app.components.recorded_clip import HERE, content, spec
from app.page_list import PAGES, SECTIONS
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from tests.app.seeding import html, link, ran, seed
from tests.every import now


def links(test) -> dict[str, str]:
    return {link.proto.label: link.proto.page for link in test.get("page_link")}


def test_one_click_starts_the_recorded_run_live_and_opens_the_lab_with_it(page, lab):
    test = page()
    test.button(key="home:live").click()
    ran(test)
    run, = lab.store.runs()
    assert run.spec == spec() and link(test)["run"] == run.id and "Queued" in html(test)


def test_the_clip_is_a_real_run_of_the_lab_s_defaults_and_small():
    clip, made = content(), spec()
    assert (HERE / "clip.json").stat().st_size <= 60_000
    assert len(clip["values"]) == made.steps and clip["values"][-1] > 0.9 > 0.6 > clip["values"][0]
    assert made == make(algorithm_key="grpo", task_key="sort"), "what a newcomer gets by Run"
    steps = [group["step"] for group in clip["groups"]]
    assert steps == sorted(steps) and steps[0] == 1 and steps[-1] == made.steps
    for group in clip["groups"]:
        assert group["target"] == "".join(sorted(group["prompt"].rstrip("=")))
        assert all(reward == (text == group["target"]) for text, reward, _ in group["answers"]), group
        best = max(advantage for _, _, advantage in group["answers"])
        assert {advantage == best for _, reward, advantage in group["answers"] if reward} <= {True}


def test_the_label_says_when_where_and_how_long_it_was_recorded():
    clip = content()
    assert clip["date"][:2] == "20" and "no GPU" in clip["machine"] and clip["seconds"] > 0
    script = (HERE / "recorded_clip.js").read_text("utf-8")
    assert "<b>Recorded</b>" in script and "prefers-reduced-motion" in script


def test_how_long_the_run_takes_is_measured_here_or_said_of_where_it_was_recorded(page, lab):
    recorded = f"on {content()['machine']}"
    assert recorded in home.how_long([])
    made = lab.store.run(seed(lab.store, "finished"))
    assert recorded in home.how_long([made]), "another run"
    said = home.how_long([replace(made, spec=spec(), seconds=seconds) for seconds in (8.0, 12.0, 30.0)])
    assert "about 12 s, as measured here" in said and recorded not in said
    assert recorded in " ".join(caption.value for caption in page().caption)


def test_every_page_of_every_section_is_one_click_away(page):
    test, there = page(), links(page())
    assert all(f"<h2>{section.title}</h2><p>{section.words}" in html(test) for section in SECTIONS)
    for each in PAGES:
        assert any(label.startswith(f"**{each.title}** {each.words}") for label in there) == bool(each.section)


@pytest.mark.parametrize("state", now(["finished", "stopped", "failed"], "finished", "failed"))
def test_the_last_run_is_one_click_away(page, lab, state):
    seed(lab.store, "finished")
    run_id = seed(lab.store, state, message="Why it ended.")
    test = page()
    assert "Your last run: <b>GRPO sort #2</b>" in html(test) and "Open in LLM lab" in links(test)
    assert re.search(r"sees <code>\w+=</code>.*must write <code>\w+</code>", html(test)), "what it sees and earns"
    resumes = [button for button in test.button if button.label == "Resume"]
    assert bool(resumes) == (state != "finished")
    if resumes:
        resumes[0].click()
        assert link(ran(test))["run"] == run_id and lab.launcher.resumed == [run_id]


def test_what_goes_is_listed_and_a_lab_without_runs_shows_no_empty_list(page, lab):
    assert "Your last run" not in html(page())
    seed(lab.store)
    test = page()
    assert "<b>GRPO sort #1</b> running" in html(test) and "rl-bar" in html(test) and "Open" in links(test)


def test_many_queued_and_live_runs_are_one_line_that_opens_them_on_runs(page, lab):
    seed(lab.store, "finished", algorithm="rloo")
    for algorithm in ("grpo", "ppo"):
        seed(lab.store, algorithm=algorithm)
    for _ in range(3):
        lab.store.create(make(algorithm_key="grpo", task_key="sort"))
    test = page()
    assert re.search(r"<b>GRPO, PPO</b>: 2 running, 3 queued", html(test)) and "sort #" not in html(test)
    opened, = (each.proto for each in test.get("page_link") if each.proto.label == "Open")
    assert opened.page == "runs" and unquote(opened.query_string) == "state=running,queued"


def test_a_queued_run_was_queued_and_not_started(page, lab):
    lab.store.create(make(algorithm_key="grpo", task_key="sort"))
    assert re.search(r"step 0 of 200 · queued [\d.]+ s ago", html(page()))


def test_a_queued_run_says_which_runs_hold_the_places(page, lab):
    waiting, holder = lab.store.create(make(algorithm_key="grpo", task_key="sort")), seed(lab.store)
    lab.store.set_waiting({waiting: 1})
    shown = html(page())
    assert (f'waiting for a free place: <a href="llm?run={holder}" target="_self" style="color:inherit">'
            "GRPO sort #2</a> (running) holds it") in shown
    assert 'title="waiting for a free place: GRPO sort #2 (running) holds it' in shown, "cut off, it can be read whole"


def test_a_message_with_markup_is_shown_as_text(page, lab):
    seed(lab.store, "failed", message="<img src=x onerror=alert(1)>")
    assert "<img" not in html(page())


def test_the_clip_is_plain_json():
    assert json.loads((HERE / "clip.json").read_text("utf-8")) == content()


def test_the_headline_number_keeps_the_capitals_of_its_symbols(lab):
    run_id = lab.store.create(make(kind="maze", algorithm_key="value_iteration", task_key="textbook"), mine=True)
    lab.store.set_state(run_id, "running")
    lab.store.append(run_id, Record(1, 0, {"value_error": 0.25}), 0.1)
    run, = lab.store.runs()
    assert "error of V <b>0.25" in listing.words(run, lab.store.steps_after(run_id)[0])


@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_that_failed_before_its_first_step_is_not_offered_to_be_resumed(page, lab, steps):
    seed(lab.store, "failed", steps=steps, message="There is no model 'mine'.")
    assert ("Resume" in [button.label for button in page().button]) == bool(steps)
