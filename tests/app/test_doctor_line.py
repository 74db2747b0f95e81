"""The doctor's line on top of a run: what held at the step shown, and the fix as a button."""

from dataclasses import replace

import pytest

from app.tokens import literal
from app.training.chart_data import payload
from app.training.doctor_line import details, line, remedy
from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.finding import Change, Finding
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Event
from tests.app.seeding import html, ran, seed
from tests.app.test_charts import feed

ILL = Finding("Most groups <b>", "71 % of them", "Larger groups.", "group_size", 16, "zero_variance", "warning")
FAR = Finding("The KL grows too fast", "0.1 → 1.2 nats/token", "A stronger penalty.", "beta", 0.2, "kl_runaway",
              "problem")
SPEC = make(algorithm_key="grpo", task_key="sort", steps=10)


def told(store, run_id: str, *changes: Change) -> None:
    for change in changes:
        store.log(run_id, doctor.EVENT, doctor.payload(change), change.step)


def mends(test) -> list[str]:
    return [button.label for button in test.button if (button.key or "").startswith("mend:line")]


def test_the_line_has_the_most_severe_finding_and_keeps_its_place_where_there_is_none():
    assert line([]) == '<div class="rl-doctor" role="status">&nbsp;</div>'
    said = line([FAR, ILL])
    assert "<i>Problem</i><b>The KL grows too fast</b>" in said and "<span>0.1 → 1.2 nats/token</span>" in said
    assert "rl-problem" in said
    assert "Most groups &lt;b&gt;" in line([ILL]) and "&lt;b&gt;</b>, seen at step 1,200<br>71 %" in details(1200, ILL)


@pytest.mark.parametrize(("finding", "going", "values", "label", "forks"), [
    (ILL, True, {}, "G 8 → 16", False), (ILL, False, {}, "Fork with G 8 → 16", True),
    (replace(ILL, began=7), True, {}, "Fork with G 8 → 16", True), (ILL, True, {"group_size": 16}, None, None),
    (Finding("a", "b", "c", "aggregation", "token_mean"), True, {},
     "Fork with Aggregation: mean over all tokens of the update", True),
    (Finding("a", "b", "c", "sft_steps", 50), True, {}, None, None),  # came before the first step
    (Finding("a", "b", "c", "max_new_tokens", 10**6), True, {}, None, None),  # beyond its bounds
    (Finding("a", "b", "c", "mini_batches", 5), True, {}, None, None),  # does not divide 32 prompts
    (Finding("a", "b", "c", "mini_batches", 5), True, {"prompts_per_step": 30}, "Mini-batches 1 → 5", False),
    (Finding("a", "b", "c"), True, {}, None, None)])
def test_a_fix_sets_a_knob_that_can_move_and_forks_for_the_others(finding, going, values, label, forks):
    found = remedy(SPEC, going, {**SPEC.knobs, **values}, finding)
    assert (found and (found.label, found.forks)) == (label and (label, forks))


def test_a_going_run_is_mended_by_a_click(page, lab):
    run_id = seed(lab.store)
    told(lab.store, run_id, Change(2, ILL.rule, ILL), Change(4, FAR.rule, FAR), Change(5, FAR.rule))
    test = page("llm", run=run_id)
    assert "<i>Warning</i>" in html(test) and "kl_runaway" not in html(test) and mends(test) == ["G 8 → 16"]
    test.button(key="mend:line:zero_variance").click()
    ran(test)
    [asked] = lab.store.asked(run_id)
    assert (asked.command, asked.payload) == ("set", {"knob": "group_size", "value": 16})

    earlier = page("llm", run=run_id, at="4")
    assert "<i>Problem</i><b>The KL grows too fast" in html(earlier) and mends(earlier) == []  # β is 0.2 there
    assert '<div class="rl-doctor" role="status">&nbsp;</div>' in html(page("llm", run=run_id, at="1"))


def test_a_run_that_ended_is_mended_by_a_fork(page, lab):
    run_id = seed(lab.store, "finished")
    told(lab.store, run_id, Change(4, ILL.rule, ILL))
    test = page("llm", run=run_id)
    assert mends(test) == ["Fork with G 8 → 16"]
    test.button(key="mend:line:zero_variance").click()
    ran(test)
    assert test.session_state["fork"].knob == "group_size" and test.session_state["fork"].before == 4


def test_the_text_of_a_fix_is_no_markdown(page, lab):
    run_id = seed(lab.store)
    told(lab.store, run_id, Change(2, ILL.rule, replace(ILL, fix="![x](http://x) $a$")))
    test = page("llm", run=run_id)
    assert test.button(key="mend:line:zero_variance").help == literal("![x](http://x) $a$")
    assert "Fix: ![x](http://x) $a$" in details(1, replace(ILL, fix="![x](http://x) $a$"))


def test_a_verdict_is_a_marker_and_a_note_is_none():
    note = Finding("The clip has no effect", "one update", "", rule="clip_cannot_act", severity="note")
    found = feed({"reward": 0.1}, {"reward": 0.2})
    changes = (Change(1, ILL.rule, ILL), Change(1, note.rule, note), Change(2, ILL.rule))
    found.take([], [Event(place, change.step, doctor.EVENT, doctor.payload(change), 0.0)
                    for place, change in enumerate(changes, start=1)])
    assert payload({"a": found}, full=True, x="step", smooth=0, ended=False)["markers"] == [
        {"run": "a", "step": 1, "update": None, "text": "Most groups <b>", "event": None, "verdict": True,
         "beside": False}]
