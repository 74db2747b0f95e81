"""The page of the surrogate explorer: what it begins with, with a run and without, and what it says of a wrong link."""

import json
import re

import pytest

from app.components.surrogate_explorer import EXPLORER
from app.surrogate import place, tokens
from app.surrogate.page import payload
from app.surrogate.place import FIRST, KNOBS, LABELS, SURROGATES, Place, grab
from app.surrogate.tokens import of_run
from labcore.catalog import choices
from labcore.catalog.choice import Surrogate
from labcore.catalog.knob import Knob
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.runs.files.paths import run_folder
from labcore.runs.titles import title
from tests.app.seeding import link, ran, samples, saved_as, seed
from tests.app.test_cartpole_page import seed as cartpole


def test_no_two_curves_have_one_colour():
    twins = [path.read_text("utf-8") for path in EXPLORER.folder.glob("twin_*.js")]
    colours = [found[1] for twin in twins if (found := re.search(r'colour: \["(\d)"', twin))]
    assert len(colours) == len(twins) == len({*colours})
    assert all(f"--f{colour}:" in EXPLORER.style and f".rl-s{colour}" in EXPLORER.style for colour in colours)


def given(test) -> dict:
    """What the component was given."""
    found, = [data for element in test.get("bidi_component") if "usual" in (data := json.loads(element.proto.json)[0])]
    return {**found, "now": {**found["usual"], **found["said"]}}


def test_without_a_run_it_begins_with_the_defaults_of_the_lab(page):
    test = page("surrogate")
    found, links = given(test), {each.proto.query_string for each in test.get("page_link")}
    assert {"lesson=why_clip", "preset=no_clip"} <= links
    assert not found["tokens"] and found["now"]["clip_high"] == KNOBS["clip_high"].default == 0.2
    assert found["now"]["focus"] == FIRST and found["now"]["shown"] == [FIRST]
    assert {*LABELS} <= {*found["drawn"]} and found["labels"] == LABELS


def test_a_link_says_what_was_grabbed(page):
    found = given(page("surrogate", clip_high="0.28", beta="2", rho="0.5", shown="clip,soft_gate", old="0.2,0.2,0.6"))
    assert found["said"] == {"clip_high": 0.28, "beta": 2.0, "rho": 0.5, "shown": ["clip", "soft_gate"],
                             "old": [0.2, 0.2, 0.6]}


@pytest.mark.parametrize("said, why", [
    ({"beta": "-1"}, "beta"), ({"old": "0.5,0.5"}, "3 numbers"), ({"old": "0.5,0.5,0.5"}, "sum to 1"),
    ({"focus": "ppo"}, "choose one of"), ({"rewards": "1,x,2"}, "a number from")])
def test_what_does_not_fit_is_said_and_left_out(page, said, why):
    test = page("surrogate", **said)
    assert why in test.warning[0].value and not given(test)["said"]


def test_a_run_brings_its_tokens_and_knobs_and_the_tab_leads_there(page, lab):
    run = seed(lab.store, "finished", knobs={"clip_high": 0.28})
    path = run_folder(run) / "samples" / "step-000005.json"
    path.write_text(json.dumps({**samples(1.3), "clip_high": 0.28}))
    found = given(page("surrogate", run=run))
    assert found["tokens"] == [[1.3, 0.7]] * 4 + [[1.3, -0.7]] * 5 + [[1.3, 0.7]] * 4 + [[1.3, -0.7]] * 5
    assert (found["step"], found["now"]["clip_high"], found["now"]["beta"], found["now"]["a"]) == (5, 0.28, 0.04, 0.7)
    tab = page("llm", run=run, tab="Surrogate")
    there, = [each.proto for each in tab.get("page_link") if each.proto.label == "Open in the surrogate explorer"]
    assert (there.page, there.query_string) == ("surrogate", f"run={run}&at=6")


@pytest.mark.parametrize("kind, seeded", [
    ("llm", seed), pytest.param("cartpole", cartpole, marks=pytest.mark.long)])
def test_a_saved_picture_names_its_run_by_the_title(page, lab, kind, seeded):
    run = seeded(lab.store, "finished")
    found = saved_as(page(kind, run=run, tab="Surrogate"))
    assert found["Surrogate against the ratio"].startswith(f"{title(lab.store.run(run))}, step ")
    assert not [caption for caption in found.values() if run in caption]


def test_a_step_in_the_link_is_the_one_shown(page, lab):
    run = cartpole(lab.store, "finished")
    assert [given(page("surrogate", run=run, at=at))["step"] for at in ("5", "99", "0")] == [4, 6, 6]
    test = page("surrogate", run=run)
    test.select_slider[0].set_value(2)
    ran(test)
    assert link(test) == {"run": run, "at": "2"} and given(test)["step"] == 2


@pytest.mark.parametrize("algorithm, focus", [("ppo", "clip"), ("trpo", "cpi")])
def test_a_world_brings_its_steps(page, lab, algorithm, focus):
    found = given(page("surrogate", run=cartpole(lab.store, "finished", algorithm)))
    assert (found["tokens"], found["now"]["focus"]) == ([[0.9, -1.0], [1.3, 0.5]], focus)
    assert found["now"]["delta"] == (0.02 if focus == "cpi" else 0.05)


def test_a_run_whose_surrogate_is_rare_draws_it(page, lab):
    found = given(page("surrogate", run=seed(lab.store, "finished", algorithm="gmpo")))
    assert found["now"]["focus"] == "geometric_clip" and found["now"]["shown"] == ["geometric_clip"]


# One of tokens and one of whole completions: nothing else tells them apart on the page.
UNDRAWN = {choice.whole: choice for choice in choices.SURROGATE
           if choice.needs_ratio and choice.key not in SURROGATES}.values()


@pytest.mark.parametrize("choice", UNDRAWN, ids=lambda choice: choice.key)
def test_a_run_whose_surrogate_has_no_twin_says_so_and_draws_its_tokens_on_the_unclipped_one(page, lab, choice):
    row = next(row for row in ALGORITHMS.values() if row.loop == "online" and (
        row.knob("surrogate").default == choice.key))
    test = page("surrogate", run=seed(lab.store, "finished", algorithm=row.key))
    said, = [each.value for each in test.caption if "no curve for the surrogate of this run" in each.value]
    assert choice.label in said
    found = given(test)
    assert found["tokens"] and found["now"]["focus"] == "cpi" and found["now"]["shown"] == ["cpi"]


@pytest.mark.parametrize("algorithm, said", [("reinforce", "has no ratio"), ("dpo", "has no ratio")])
def test_a_run_without_a_ratio_is_told_in_a_sentence(page, lab, algorithm, said):
    test = page("surrogate", run=seed(lab.store, "finished", algorithm=algorithm))
    assert said in test.info[0].value and not given(test)["tokens"]


def test_a_run_that_is_not_there_or_has_no_samples_yet(page, lab):
    test = page("surrogate", run="no-such-run")
    assert "no run “no-such-run”" in test.warning[0].value and given(test)["now"]["focus"] == "clip"
    test = page("surrogate", run=seed(lab.store, "starting"))
    assert "has saved no ratios yet" in test.info[0].value


def test_another_run_leaves_what_the_last_was_turned_to(page, lab):
    run, other = seed(lab.store, "finished"), seed(lab.store, "finished")
    test = page("surrogate", run=run, beta="2", at="5")
    test.selectbox[0].select(other)
    ran(test)
    assert link(test) == {"run": other}


def test_what_is_grabbed_is_read_as_a_link_is(page, monkeypatch):
    turned = []
    monkeypatch.setattr("app.link.turn", lambda page, **values: turned.append(values))
    grab({"rho": 1.2345678, "close": True, "shown": ["clip", "cpi"], "old": [0.2, 0.3, 0.5], "beta": None,
          "run": "x", "a": -3})
    assert turned == [{"rho": 1.23457, "close": True, "shown": ("clip", "cpi"), "old": (0.2, 0.3, 0.5), "beta": None,
                       "a": None}]
    assert {"rho", "beta", "old"} <= {*vars(Place())}


def test_many_tokens_are_thinned_evenly(lab, monkeypatch):
    monkeypatch.setattr(tokens, "MOST", 5)
    run = lab.store.run(seed(lab.store, "finished"))
    found = of_run(run, lab.store.events_after(run.id))
    assert len(found.dots) == 18 and len(found.thinned) == 5
    assert len(payload(Place(run=run.id), found)["tokens"]) == 5 and payload(Place(), found)["count"] == 18
    with pytest.raises(LabError, match="up to step 3"):
        of_run(run, [], 3)


def test_a_surrogate_with_a_knob_that_is_a_text_is_not_drawn(monkeypatch):
    monkeypatch.setattr(place, "is_drawn", lambda key: True)
    number, text = (Knob("own", "Own", default, "Higher: more. Lower: less.") for default in (0.5, "soft"))
    assert place.can_be_drawn(Surrogate("own", "own", "S", knobs=(number,), needs_ratio=True))
    assert not place.can_be_drawn(Surrogate("own", "own", "S", knobs=(number, text), needs_ratio=True))
