"""What takes long is computed after a click: what a model from a folder would have to answer for minutes."""

from dataclasses import replace

import pytest

from app.on_request import large
from labcore.runs.spec.run_spec import make
from tests.app.asking import trained
from tests.app.seeding import ran
from tests.app.test_pages import labels


@pytest.mark.parametrize("model, is_large", [("tiny", False), ("org/model", True), ("/models/one", True),
                                             ("grpo-sort-aaaa@4", False)])
def test_a_model_from_elsewhere_is_large(model, is_large):
    spec = make(algorithm_key="grpo", task_key="sort", knobs={"sft_steps": 0})
    assert large(replace(spec, model=model)) == is_large


@pytest.mark.parametrize("tab, job", [("answers", "quiz"), ("batch", "one_batch")])
@pytest.mark.parametrize("model", ["tiny", "org/model"])
def test_a_comparison_of_large_models_is_not_computed_unasked(tab, job, model, page, asked, lab):
    run = trained(lab.store, model=model, knobs={"sft_steps": 0})
    asked.reply = lambda spec: None
    test = page("compare", runs=run, view=tab)
    unasked = [spec["job"] for spec in asked.asked]
    if model == "tiny":
        assert job in unasked and "Compute" not in labels(test)
        return
    assert job not in unasked
    next(button for button in test.button if button.label == "Compute").click()
    ran(test)
    assert job in [spec["job"] for spec in asked.asked]
