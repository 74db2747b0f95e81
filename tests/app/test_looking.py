"""Looking at a page copies no model: one that comes with the lab is copied when a run starts from it."""

from __future__ import annotations

import pytest

from labcore.analysis.lessons import folders
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.presets import of_kind
from labcore.runs.files.paths import home
from labcore.runs.presets import spec_of

NAMED = ("teacher", "reward_model")  # knobs whose value may name a model that comes with the lab


@pytest.mark.parametrize("name", ["home", "lessons", "studies"])
def test_a_page_copies_no_model(page, name):
    folders._read.cache_clear()  # another test may have read the lessons, and their settings name models
    page(name)
    assert not [*home().rglob("*.safetensors")]


@pytest.mark.parametrize("algorithm", ["opd", "grpo_process"])
def test_the_form_of_a_row_with_another_model_copies_none(page, algorithm):
    assert any(knob.key in NAMED for knob in ALGORITHMS[algorithm].knobs)
    page("llm", algorithm=algorithm, task="sort")
    assert not [*home().rglob("*.safetensors")]


def test_the_settings_of_lessons_and_presets_copy_none(lab):
    folders._read.cache_clear()
    specs = [setup.spec for lesson in folders.lessons()[0] for setup in lesson.setups]
    specs += [spec_of(each) for each in of_kind("llm")]
    for key in NAMED:
        assert any(" " in str(spec.knobs.get(key, "")) for spec in specs), "a name such as PRM HASH"
    assert not [*home().rglob("*.safetensors")]
