"""Every page in every state of a run: no exception, the right words, the right buttons."""

import json
from html import escape

import pytest
import streamlit as st

from app import link as address
from app import session
from app.draft import Draft, begin, defaults
from app.runs.state import PICKED
from app.status import STATES
from app.training.log import SHOWN_BYTES
from app.training.more_knobs import NO_EFFECT
from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.finding import Change, Finding
from labcore.catalog import kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.runs.files.paths import log_file, run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import ACTIVE, RESUMABLE, STUDIES
from tests.app.seeding import html, link, ran, seed, unfolded
from tests.every import now

MOVABLE = [state for state in STATES if state not in ("queued", "starting")]


def labels(test) -> list[str]:
    return [button.label for button in test.button]


def test_home_and_runs_offer_to_resume_what_was_interrupted(page, lab):
    for _ in range(2):
        seed(lab.store, "interrupted", message="stopped with the lab; resume it")
    for name in ("home", "runs"):
        assert "Resume all" in labels(page(name))
    test = page("runs")
    test.button(key="resume_all").click()
    ran(test)
    assert len(lab.launcher.resumed) == 2
    assert {run.state for run in lab.store.runs()} == {"queued"}


def test_a_page_opens_on_ones_own_live_run_and_on_none_of_a_sweep_a_lesson_or_a_base(page, lab):
    """The link of a page without a run."""
    own = seed(lab.store, "running")
    swept = lab.store.create_all([lab.store.run(own).spec], sweep="sweep-1", mine=True)[0]
    base = seed(lab.store, "running", algorithm="sft")
    lab.store.set_base(swept, base, cached=False)
    assert link(page("llm"))["run"] == own
    lab.store.set_state(own, "stopped")
    assert "run" not in link(page("llm"))
    last = html(page("home")).partition("Your last run: ")[2]
    assert last.startswith("<b>GRPO sort #1</b>") and swept not in last


def test_a_large_study_or_sweep_leaves_ones_own_runs_in_the_lists(page, lab):
    own, spec = seed(lab.store, "finished"), make(algorithm_key="grpo", task_key="sort")
    study = lab.store.create_all([spec] * 50, sweep="study", project=STUDIES)
    swept = lab.store.create_all([spec] * 50, sweep="swept")
    assert [run.id for run in session.runs_of("llm")] == [own]
    assert [run.id for run in session.runs_of("llm", of_sweep=2)] == [*swept[:-3:-1], own]
    assert len(next(each for each in page("llm").selectbox if each.label == "Run").options) == 2  # "New run" and it
    beside = [run.id for run in session.runs_of("llm", beside=lab.store.run(study[0]))]
    assert beside == study[:-session.RECENT - 1:-1]


def test_run_needs_no_touch_and_puts_the_run_into_the_link(page, lab):
    test = page("llm")
    test.button(key="do:Run").click()
    ran(test)
    run, = lab.store.runs()
    assert link(test)["run"] == run.id
    assert run.spec.row.key == "grpo" and run.spec.task == "sort" and run.state == "queued"
    assert "Queued" in html(test)


def shapes(row: Algorithm) -> set:
    """What the form and the picture of a row are made of."""
    knobs = {(knob.key, knob.type, knob.scale, knob.advanced) for knob in row.knobs}
    return {row.loop, row.models, *knobs, *row.panels}


def unlike_forms() -> list[str]:
    """Algorithms until everything that a form or a picture is made of stands in one."""
    seen: set = set()
    found = []
    for key, row in sorted(ALGORITHMS.items(), key=lambda each: -len(shapes(each[1]))):
        if not shapes(row) <= seen:
            seen |= shapes(row)
            found.append(key)
    return found


FORMS = unlike_forms()
PRESSED = {ALGORITHMS[key].loop: key for key in FORMS}.values()  # of each loop one


@pytest.mark.parametrize("algorithm", now(FORMS, *PRESSED, "sdft"))
def test_each_sort_of_algorithm_has_a_form_and_a_picture(page, lab, algorithm):
    test = page("llm", algorithm=algorithm)
    assert escape(ALGORITHMS[algorithm].summary)[:20] in html(test)
    if algorithm in PRESSED:  # the next test makes the specs of all
        test.button(key="do:Run").click()
        ran(test)
        assert lab.store.runs()[0].spec.algorithm == algorithm


def test_each_algorithm_can_be_chosen_and_run_untouched(monkeypatch):
    monkeypatch.setattr(st, "session_state", {})
    begin("llm", **defaults(kinds.kind("llm")))
    draft = Draft(None, "llm")
    for algorithm in ALGORITHMS:
        draft.choose("algorithm", algorithm)
        assert draft.spec().algorithm == algorithm


def test_before_a_run_on_own_pairs_one_of_them_is_shown(page, lab, tmp_path, monkeypatch):
    bare = html(page("llm", algorithm="dpo", task="preferences"))
    assert "Each line of your file is a pair" in bare and "the chosen answer" in bare and "… <span" not in bare
    assert "Exact match" in html(page("llm", algorithm="dpo", task="sort"))
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"prompt": "Say <b>hello</b> to " + "all " * 40, "chosen": "Good day.", "rejected": ""}))
    monkeypatch.setattr("app.draft._of_url", lambda kind: {
        **defaults(kind), "algorithm": "dpo", "task": "preferences", "steps": {}, "knobs": {},
        "data": {"preferences": str(path)}})
    told = html(page("llm"))
    assert "Say &lt;b&gt;hello&lt;/b&gt; to all" in told and "all…<br>" in told and "all " * 20 not in told
    assert 'Good day. <span class="rl-pos">✓' in told and "(empty)</span> <span" in told
    assert "Exact match" not in told and "Pair accuracy" in told and "Implicit rewards" in told


@pytest.mark.parametrize("state", now(MOVABLE, "running", "finished", "interrupted", "failed"))
def test_each_state_says_what_it_is_and_what_can_be_done(page, lab, state):
    run_id = seed(lab.store, state, message="A sentence about it.")
    test = page("llm", run=run_id)
    assert STATES[state][1] in html(test)
    assert state not in RESUMABLE or "Resume" in labels(test)
    assert ("New run" in labels(test)) and (state not in ACTIVE or "Stop" in labels(test))
    assert state in ("running", "finished") or "A sentence about it" in html(test)


def test_a_diverged_run_goes_on_with_the_knobs_moved_since(page, lab):
    run_id = seed(lab.store, "diverged", message="The loss was not a finite number")
    test = page("llm", run=run_id)
    [box] = [box for box in test.number_input if "learning_rate:number" in box.key and "critic" not in box.key]
    box.set_value(1e-4)
    ran(test)
    test.button(key="do:Resume").click()
    ran(test)
    assert [control.payload for control in lab.store.asked(run_id)] == [{"knob": "learning_rate", "value": 1e-4}]


def test_a_run_that_makes_its_base_shows_the_sft_run(page, lab):
    run_id = seed(lab.store, "starting")
    base = seed(lab.store, "running", algorithm="sft")
    lab.store.set_base(run_id, base, cached=False)
    test = page("llm", run=run_id)
    assert "Stage 1 of 2: SFT, then GRPO" in html(test)
    assert "step 6 of 10" in html(test)


def test_a_moved_knob_is_asked_of_the_run_once_and_only_by_its_callback(page, lab):
    run_id = seed(lab.store)
    test = page("llm", run=run_id)
    assert not lab.store.controls(run_id)
    beta = named(test, "KL coefficient β · live")
    assert beta.value == 0.2, "the widget shows the run's present value, not the spec's"
    beta.set_value(0.1)
    ran(test)
    ran(test)
    control, = lab.store.controls(run_id)
    assert (control.command, control.payload) == ("set", {"knob": "beta", "value": 0.1})


def captions(test) -> str:
    return " ".join(caption.value for caption in test.caption)


def test_a_knob_without_effect_says_so_beside_it_and_only_while_it_is_so(page, lab):
    hint = "one update per batch, so every ratio is 1."
    test = unfolded(page("llm", updates_per_batch="1"), NO_EFFECT)
    assert f"No effect of ε_low, ε_high: {hint}" in captions(test)
    assert captions(test).count(hint) == 2, "once for neighbours: the clip in its place, the others in their fold"
    assert "the reward shaping is none." in captions(test)
    move(test, "Updates per batch", 2)
    assert hint not in captions(test)
    test = unfolded(page("llm", run=seed(lab.store, knobs={"updates_per_batch": 2})), NO_EFFECT)
    assert hint not in captions(test)
    move(test, "Updates per batch", 1)
    assert captions(test).count(hint) == 2, "in a run it follows the live value"


def test_the_knobs_of_a_fold_are_drawn_once_it_is_open_and_keep_their_values(page):
    test = page("llm", max_grad_norm="0.5")
    names = [knob.label for knob in test.select_slider]
    assert "Learning rate η" in names and "Gradient clip" not in names
    limit = named(unfolded(test, "optimisation"), "Gradient clip")
    assert limit.value == 0.5
    limit.set_value(2.0)
    ran(test)
    test.session_state["more_knobs"] = False
    assert ran(test).query_params["max_grad_norm"] == "2.0"


def named(test, knob: str):
    return next(slider for slider in test.select_slider if slider.label == knob)


def move(test, knob: str, value: float) -> None:
    next(slider for slider in test.slider if slider.label.startswith(knob)).set_value(value)
    ran(test)


def test_reinforce_says_that_it_has_no_clip(page):
    assert "no clip" in html(page("llm", algorithm="reinforce"))


def test_restart_knobs_are_locked_while_the_run_is_going(page, lab):
    test = page("llm", run=seed(lab.store))
    letters = next(slider for slider in test.slider if slider.label.startswith("Letters"))
    assert letters.disabled and "Locked" in letters.help


def test_the_buttons_of_a_run_stay_in_their_places_when_it_begins(page, lab):
    """Whoever is about to press Stop must not press what has come under the mouse."""
    run_id = seed(lab.store, "starting")
    test = page("llm", run=run_id)
    before = [(button.label, button.disabled) for button in test.button if (button.key or "").startswith("do:")]
    assert before == [("Pause", True), ("Stop", False), ("Fork", True)]
    lab.store.set_state(run_id, "running")
    after = [(button.label, button.disabled) for button in ran(test).button if (button.key or "").startswith("do:")]
    assert after == [(label, False) for label, _ in before]


def test_pause_and_step_reach_the_store(page, lab):
    run_id = seed(lab.store)
    test = page("llm", run=run_id)
    test.button(key="do:Pause").click()
    ran(test)
    lab.store.set_state(run_id, "paused")
    test = page("llm", run=run_id)
    test.button(key="do:Step").click()
    ran(test)
    assert [control.command for control in lab.store.controls(run_id)] == ["pause", "step"]


def test_what_is_asked_twice_at_once_is_asked_once(page, lab):
    run_id = seed(lab.store)
    lab.store.set_state(run_id, "paused")
    test = page("llm", run=run_id)
    for _ in range(2):
        test.button(key="do:Step").click()
        ran(test)
    step, = lab.store.controls(run_id)
    lab.store.settle(step.id, 7)
    test.button(key="do:Step").click()
    ran(test)
    assert [control.command for control in lab.store.controls(run_id)] == ["step", "step"]


def test_settings_that_do_not_go_together_are_told_in_the_form_and_cannot_be_run(page):
    test = page("llm", group_size="1")
    assert "Group size G is 1" in test.warning[0].value
    assert test.button(key="do:Run").disabled and "Group size G is 1" in test.button(key="do:Run").proto.help


def test_the_model_box_takes_the_name_that_a_model_is_shown_by(page, lab, monkeypatch):
    parent = seed(lab.store, "finished")
    policy = run_folder(parent) / "checkpoints" / "step-000004" / "policy"
    policy.mkdir(parents=True)
    monkeypatch.setattr(st, "session_state", {})
    begin("llm", **defaults(kinds.kind("llm")))
    draft = Draft(None, "llm")
    draft.choose("model", f"{parent}@4")
    assert draft.spec().model == str(policy)
    assert link(page("llm", model=f"{parent}@4"))["model"] == f"{parent}@4"


def test_a_link_with_a_checkpoint_opens_the_form_with_its_model(page, lab, grpo):
    test = page("llm", model=f"{grpo}@6", seed="4")
    test.button(key="do:Run").click()
    ran(test)
    assert lab.store.runs(limit=1)[0].spec.model.endswith(f"{grpo}/checkpoints/step-000006/policy")


def test_what_a_run_says_has_its_own_words(page, lab):
    """β is a KL coefficient in most algorithms, and another thing in DPO."""
    refused = "`beta` is 200, outside its bounds: use a value from 0 to 10."
    going, broken = seed(lab.store, algorithm="dpo"), seed(lab.store, "failed", message=refused, algorithm="dpo")
    test = page("llm", run=going)
    lab.store.log(going, "refused", {"knob": "beta", "value": 200.0, "text": refused}, 6)
    assert ran(test).error[0].value.startswith("Inverse temperature β is 200")
    test = page("runs")
    test.session_state[PICKED] = [broken]
    ran(test).button(key="act:details").click()
    assert any("Inverse temperature β is 200" in caption.value for caption in ran(test).caption)


def test_a_new_tab_finds_the_run_that_is_going(page, lab):
    run_id = seed(lab.store)
    assert link(page("llm"))["run"] == run_id


@pytest.mark.parametrize("tab", now(["Surrogate", "Equation", "Events", "Data", "Export"], "Data"))
def test_tabs(page, lab, tab):
    test = page("llm", run=seed(lab.store, "finished"), tab=tab)
    assert [each.label for each in test.tabs] == [
        "Microscope", "Surrogate", "Judge again", "Action space", "Cost", "Equation", "Events", "Data", "Export"]
    words = {"Surrogate": "α = 0 is the policy", "Equation": "arXiv", "Events": "", "Export": "metrics.csv",
             "Data": "The last 6 rows up to step 6 of 6, with three significant digits; metrics.csv"}
    assert words[tab] in " ".join(element.value for element in (*test.caption, *test.markdown))
    assert "Completions appear here" not in " ".join(element.value for element in test.caption)


def test_the_events_are_said_in_words(page, lab):
    run_id = seed(lab.store, "finished")
    lab.store.log(run_id, "checkpoint", {"seconds": 0.1917}, 3)
    far = Finding("The KL grows too fast", "0.1 → 1.2 nats/token", "A stronger penalty.", "beta", 0.2, "kl_runaway")
    for change in (Change(3, far.rule, far), Change(5, far.rule, None), Change(5, "another", None)):
        lab.store.log(run_id, doctor.EVENT, doctor.payload(change), change.step)
    test = page("llm", run=run_id, tab="Events")
    turns, others, checkpoints = (list(table.value["detail"]) for table in test.dataframe)
    assert turns == ["β 0.04 → 0.2"] and checkpoints == ["written in 0.2 s"], "changes first, checkpoints folded"
    assert {"The KL grows too fast: 0.1 → 1.2 nats/token", "No longer: The KL grows too fast",
            "No longer: another"} <= set(others)
    assert test.expander[-1].label.startswith("1 checkpoint")


def test_the_log_of_a_run_that_ended_is_below_its_events(page, lab):
    going, failed, silent = seed(lab.store), seed(lab.store, "failed"), seed(lab.store, "finished")
    for run_id in (going, failed):
        log_file(run_id).write_text("Traceback\n" + "a line <b>\n" * 5000 + "KeyError: 7\n")
    for run_id in (going, silent):
        assert "Log of the worker" not in [each.label for each in page("llm", run=run_id, tab="Events").expander]
    test = page("llm", run=failed, tab="Events")
    [log] = [each for each in test.expander if each.label == "Log of the worker"]
    text = log.code[0].value
    assert text.startswith("a line <b>\n") and text.endswith("KeyError: 7") and len(text) <= SHOWN_BYTES
    assert [button.label for button in log.get("download_button")] == ["Download log"]


def test_what_is_looked_at_goes_into_the_link_and_the_charts_ways_go_on_to_the_next_run(page, lab):
    first, second = seed(lab.store, "finished"), seed(lab.store, "finished")
    test = page("llm", run=first, tab="Events", x="tokens", at="5")
    next(box for box in test.selectbox if box.label == "Run").select(second)
    assert link(ran(test)) == {"run": second, "tab": "Events", "x": "tokens"}


def test_a_refresh_with_the_link_of_before_does_not_undo_a_choice(page, lab, monkeypatch):
    """The browser's next refresh may be on its way when the choice is made."""
    test = page("llm", run=seed(lab.store, "finished"))
    [smoothing] = [slider for slider in test.slider if slider.label == "Smoothing"]
    smoothing.set_value(0.5)
    ran(test)
    assert link(test)["smooth"] == "0.5"
    del test.query_params["smooth"]

    def shown():
        return [slider.value for slider in ran(test).slider if slider.label == "Smoothing"]

    assert shown() == [0.5]
    monkeypatch.setattr(address.time, "monotonic", lambda: float("inf"))  # much later: a new link
    assert shown() == [0.0]


def test_a_number_box_starts_from_the_run_s_value_even_if_it_is_mounted_late(page, lab):
    """The browser mounts what is in a closed popover later, from the default it was sent."""
    test = page("llm", run=seed(lab.store))
    boxes = {box.label.split(" ")[0]: box.proto.default for box in test.number_input}
    assert boxes["KL"] == 0.2 and boxes["Group"] == 8
