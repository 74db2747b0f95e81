"""Presets on the pages that train: cards, what to look at, links, and two runs side by side."""

import re
from html import escape as html_of

import pytest
from streamlit.testing.v1 import AppTest

from app.training import presets
from labcore.catalog.metrics import METRICS
from labcore.catalog.presets import PRESETS, of_kind
from labcore.catalog.right import in_run
from labcore.runs.presets import spec_of
from tests.app.seeding import html, link, ran
from tests.every import now


def card_keys(test: AppTest) -> list[str]:
    return [button.key for button in test.button if (button.key or "").startswith("preset:")]


@pytest.mark.parametrize("kind", now(["llm", "maze", "cartpole"], "llm"))
def test_a_page_has_a_card_for_each_pair_or_single_preset(page, kind):
    leads = [f"preset:{each.key}" for each in presets.leads(of_kind(kind))]
    assert card_keys(page(kind)) == leads and len(leads) < len(of_kind(kind))


def test_one_click_takes_the_settings_says_what_to_look_at_and_makes_a_short_link(page, lab):
    test = page("llm", beta="0.3")
    test.button(key="preset:no_clip").click()
    ran(test)
    assert link(test) == {"preset": "no_clip"}
    assert all(sentence in html(test) for sentence in PRESETS["no_clip"].look)
    test.button(key="do:Run").click()
    ran(test)
    assert lab.store.runs(limit=1)[0].spec == spec_of(PRESETS["no_clip"])


def test_what_was_set_before_a_preset_comes_back(page):
    test = page("llm", algorithm="ppo", beta="0.3", seed="4")
    for key in ("preset:no_clip", "preset:other", "preset:back"):
        test.button(key=key).click()
        ran(test)
    assert link(test) == {"algorithm": "ppo", "beta": "0.3", "seed": "4"}


def test_a_link_opens_a_preset_and_may_change_it(page):
    test = page("llm", preset="clip")
    assert PRESETS["clip"].look[0] in html(test) and link(test) == {"preset": "clip"}
    test = page("llm", preset="clip", clip_low="0.1")
    found = link(test)
    assert found["clip_low"] == "0.1" and found["updates_per_batch"] == "8" and "preset" not in found
    test = page("llm", preset="clipp")
    assert "preset=clipp" in test.error[0].value


def test_a_knob_that_is_moved_ends_the_preset(page):
    test = page("llm", preset="clip")
    next(each for each in test.slider if each.label.startswith("Updates per batch")).set_value(4)
    ran(test)
    assert PRESETS["clip"].look[0] not in html(test) and "preset" not in link(test)


def test_both_of_a_pair_are_started_with_one_seed_and_compared(page, lab):
    test = page("llm", preset="no_clip", seed="5")
    test.button(key="preset:both").click()
    test.run()
    runs = lab.store.runs()
    assert {run.spec.to_json() for run in runs} == {spec_of(PRESETS[key], 5).to_json() for key in ("no_clip", "clip")}
    assert set(link(test)["runs"].split(",")) == {run.id for run in runs} and link(test)["by"] == "updates"


def test_a_run_with_a_preset_s_settings_says_what_to_look_at_and_offers_the_other_one(page, lab):
    run = lab.store.create(spec_of(PRESETS["no_clip"], 2), mine=True)
    test = page("llm", run=run)
    assert PRESETS["no_clip"].look[1] in html(test)
    test.button(key="preset:beside").click()
    test.run()
    other = next(each for each in lab.store.runs() if each.id != run)
    assert other.spec == spec_of(PRESETS["clip"], 2) and link(test)["runs"] == f"{run},{other.id}"


def test_a_picture_has_a_line_for_each_curve_and_is_described(monkeypatch):
    monkeypatch.setattr(presets, "ground", lambda: "dark")
    drawn = presets.picture(PRESETS["reward_hacking"])
    assert drawn.count("%3Cpolyline") == 3, "reward, gold, and the reward beside it"
    assert 'alt="Reward of a recorded run: ' in drawn


@pytest.mark.parametrize("kind", now(["llm", "maze", "cartpole"], "llm"))
def test_a_card_names_every_line_of_its_picture(page, kind):
    test = page(kind)
    for preset in presets.leads(of_kind(kind)):
        card = next(each.proto.body for each in test.get("html") if f">{preset.label}</b>" in each.proto.body)
        tooltip = test.button(key=f"preset:{preset.key}").help
        spec = spec_of(preset)
        for key in preset.drawn:
            assert f"</i>{html_of(METRICS[key].inline)}</span>" in card
            metric = in_run(key, spec.row, spec.task_row, spec.knobs)
            number = r"[<>]?[\d.]+ %" if metric.share else r"[^\s%]+"
            assert re.search(rf"{re.escape(metric.inline)} (always {number}|{number} → {number})[;.]", tooltip)
        assert ("Grey line: " in tooltip) == bool(preset.beside)


def test_a_preset_without_a_recording_has_no_picture(monkeypatch):
    monkeypatch.setattr(presets, "recorded", dict)
    assert presets.picture(PRESETS["clip"]) == presets.legend(PRESETS["clip"]) == ""
