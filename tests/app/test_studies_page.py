"""The page Studies: all claims with what was recorded; one before its runs, while they go, and with a result."""

import pytest

from app.scale import Scale
from app.studies import picture
from labcore.analysis.estimate import Estimate
from labcore.analysis.studies import plan, recorded, verdict
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Contrast
from labcore.runs.spec.session import Record
from tests.app.seeding import html, link


def finished(store, study, level=lambda setting, seed: 0.5) -> None:
    """All runs of a study, with one reward throughout."""
    for seed in study.seeds:
        for setting in study.settings:
            run_id = store.create(plan.spec_of(study, setting, seed), mine=True, sweep="sweep-a")
            store.set_state(run_id, "running")
            for step in (1, study.steps):
                value = level(setting, seed) + 0.001 * seed
                store.append(run_id, Record(step, step, {"reward": value, "updates": float(step)}), float(step))
            store.set_state(run_id, "finished")


def test_all_claims_are_listed_with_what_was_recorded(page):
    text = html(page("studies"))
    assert all(study.title in text and study.source in text for study in STUDIES.values())
    kept = recorded.read().values()
    assert text.count("rl-verdict rl-") == len(kept) + len({each.verdict for each in kept}), "each, and their counts"
    assert "would decide" in text and text.count("rl-interval") > len(STUDIES)


def test_a_study_without_runs_says_its_cost_and_starts_them_at_a_click(page, lab, asked):
    asked.reply = lambda spec: {"paces": [{"once": 0.0, "step": 0.25}] * len(spec["specs"])}
    test = page("studies", study="samples")
    assert STUDIES["samples"].claim in html(test) and "Your own result appears here" in html(test)
    assert any("About" in caption.value for caption in test.caption)
    start = next(button for button in test.button if button.label == "Run this study: 12 runs")
    start.click().run()
    assert len(lab.store.sweep_runs()) == 12 and lab.launcher.woken
    assert "12 queued" in html(test) and not [each for each in test.button if each.label.startswith("Run this")]
    next(button for button in test.button if button.label == "Stop").click().run()
    assert {row.state for row in lab.store.sweep_runs()} == {"stopped"}


def test_finished_runs_give_a_verdict_beside_the_recorded_one(page, lab):
    study = STUDIES["samples"]
    finished(lab.store, study, lambda setting, seed: 0.8 if setting.algorithm.startswith("rl") else 0.5)
    test = page("studies", study="samples")
    text = html(test)
    assert "<b>Your runs:</b>" in text and "0.300 [0.2" in text and "rl-agrees" in text
    assert "3 more seeds" in [button.label for button in test.button]
    assert any(each.proto.label == "Open in Compare" for each in test.get("page_link"))


def test_an_undecided_claim_says_what_it_would_take_and_queues_it(page, lab, asked):
    """Recorded: λ 1 − λ 0.95 is −0.016 ± 0.042 with five seeds of these two settings."""
    asked.reply = lambda spec: {"paces": [{"once": 0.0, "step": 0.25}] * len(spec["specs"])}
    test = page("studies", study="gae_lambda")
    need = verdict.needed(STUDIES["gae_lambda"], recorded.read()["gae_lambda"].findings)
    assert need == verdict.Need(43, ("λ 0", "λ 0.5", "λ 0.9", "λ 0.95", "λ 1")[3:])
    assert f"About {need.seeds} seeds would" in html(test)
    button = next(each for each in test.button if each.key == "study:decide")
    runs = 5 * 3 + 2 * (43 - 3)
    assert button.label == f"Queue {runs} runs"
    assert any("sampled tokens" in each.value and "About" in each.value for each in test.caption)
    button.click().run()
    assert len(lab.store.sweep_runs()) == runs and lab.launcher.woken
    assert max(row.spec.seed for row in lab.store.sweep_runs()) == 42


def test_a_difference_too_small_for_any_number_of_seeds_has_no_button(page):
    test = page("studies", study="beta")
    assert "too small" in html(test) and not [each for each in test.button if each.key == "study:decide"]


def test_contrasts_of_one_kind_share_a_scale_that_all_of_them_fit():
    study, kept = STUDIES["over_optimisation"], recorded.read()["over_optimisation"]
    scale_of = picture.scales(study.contrasts, [kept.findings])
    assert len(scale_of) == 3, "the change of the score, the change of gold, and gold at the end"
    for contrast in study.contrasts:
        scale, found = scale_of[contrast.measure.kind], kept.findings[contrast.label][0]
        assert 0 < scale.share(found.low) < scale.share(found.high) < 1 and 3 <= len(scale.ticks) <= 6
    text = picture.findings(study, None, kept)
    assert text.count("rl-axis") - picture.CSS.count("rl-axis") == 3


def test_what_needs_reward_models_trains_them_first(page, asked):
    asked.reply = lambda spec: {"paces": [None] * len(spec["specs"])}
    labels = [button.label for button in page("studies", study="over_optimisation").button]
    assert "Train the 5 reward models first" in labels


def test_the_box_of_a_study_on_your_own_model_has_the_model_of_the_link(page):
    test = page("studies", study="real_distillation", model="some/model")
    assert test.text_input[0].value == "some/model"
    test.query_params["model"] = "other/model"  # as the browser's back button has it
    test.run()
    assert test.text_input[0].value == "other/model" and "other/model" in html(test)
    test.text_input[0].set_value("third/model").run()
    assert link(test)["model"] == "third/model" and test.text_input[0].value == "third/model"


def test_an_unknown_study_is_refused_in_a_sentence(page):
    assert "study" in page("studies", study="nothing").warning[0].value


@pytest.mark.parametrize("low, high, words", [(0.0, float("inf"), "above 0"), (float("-inf"), -0.05, "below −0.05"),
                                              (3.5, 4.5, "between 3.5 and 4.5")])
def test_the_drawing_says_where_the_claim_lies(low, high, words):
    found = picture.drawing(Contrast("A < B", {"a": 1.0}, low=low, high=high), {"here": Estimate(0.1, 0.0, 0.2, 3)},
                            Scale(-1.0, 5.0))
    assert words in found and "A &lt; B: here 0.100 [0.000, 0.200]" in found
