"""Foundations: one section at a time, each with its address; a model is asked only when the reader wants it."""

from app.foundations.sections import SECTIONS
from app.llm.own_tabs import TABS
from labcore.catalog.kinds import KINDS
from labcore.runs.spec.run_spec import every_knob
from tests.app.asking import trained
from tests.app.seeding import html, link, ran

ANSWER = {"model": "grpo@6", "prompt": "dbca=", "vocabulary": 12, "tokens": ["a", "<b>"], "tempered": [
    {"temperature": 1.0, "entropy": 0.5, "top": [0.9, 0.05], "rest": 0.05}]}


def subheader(test) -> str:
    return test.subheader[0].value


def test_a_link_opens_its_section_and_what_it_cannot_mean_is_said(page):
    assert subheader(page("foundations")) == SECTIONS[0].title
    last = page("foundations", section="monte_carlo")
    assert subheader(last) == "Monte Carlo" and len(last.subheader) == 1, "only one section is mounted"
    wrong = page("foundations", section="monte_karlo")
    assert subheader(wrong) == SECTIONS[0].title and "did you mean 'monte_carlo'" in wrong.warning[0].value


def test_sections_are_told_apart_and_lead_to_places_that_are_there():
    keys = [section.key for section in SECTIONS]
    assert keys[:4] == ["entropy", "kl", "kl_samples", "monte_carlo"] and len({*keys}) == len(keys)
    knobs = every_knob()
    for section in SECTIONS:
        assert section.symbols and section.tries and section.returns, section.key
        assert section.sentence.count(". ") == 0, "one sentence"
        for place in section.returns:
            known = {key for kind in KINDS.values() for key in kind.algorithms}
            assert place.query.get("algorithm", "grpo") in known
            assert place.query.get("tab", "Surrogate") in TABS
            if place.page in KINDS:
                assert {*place.query} - {"algorithm", "task", "tab"} <= {*knobs}, section.key


def test_a_model_is_asked_by_a_click_and_by_the_link_of_it(page, grpo, asked):
    asked.reply = lambda spec: ANSWER
    test = page("foundations")
    assert asked.asked == []
    test.button(key="foundations:ask").click()
    ran(test)
    job, = asked.asked
    assert job["job"] == "next_token" and job["model"] == f"{grpo}@6" and link(test)["prompt"] == job["prompt"]
    page("foundations", model=f"base:{grpo}", prompt="fe=")
    assert asked.asked[1]["model"] == f"base:{grpo}" and asked.asked[1]["prompt"] == "fe="


def test_a_run_that_diverged_is_offered_last_and_its_action_space_not_at_all(page, lab, asked):
    sound, broken = trained(lab.store), trained(lab.store, state="diverged")
    test = page("foundations")
    box = next(each for each in test.selectbox if each.label == "Run")
    assert box.value == sound and len(box.options) == 2
    linked = [each.proto.query_string for each in page("foundations", section="entropy").get("page_link")]
    assert not any(broken in each for each in linked)


def test_a_run_that_has_only_begun_is_asked_as_its_base(page, lab, asked):
    """A running lesson's: its only checkpoint is that of step 0, which is the base itself."""
    run = trained(lab.store, steps=(0,), state="running")
    asked.reply = lambda spec: ANSWER
    test = page("foundations")
    assert not test.error
    test.button(key="foundations:ask").click()
    ran(test)
    assert asked.asked[0]["model"] == f"base:{run}"


def test_without_a_model_it_says_where_one_is_made(page):
    test = page("foundations")
    assert "no trained model yet" in " ".join(each.value for each in test.markdown)
    assert "There is no run" not in html(test)
