"""Every preset: its settings can be run and have an effect, its chart is there, its picture is recorded, and (with
`make test-long`) what it promises happens."""

import json
from dataclasses import replace

import pytest

from docs import record_presets
from labcore.analysis.lessons.expression import parse
from labcore.catalog import inactive
from labcore.catalog.conditions import updates
from labcore.catalog.panels import with_switched
from labcore.catalog.presets import PRESETS, RECORDED, Preset, preset, recorded
from labcore.errors import LabError
from labcore.runs.presets import preset_of, spec_of, unwatched
from labcore.runs.spec.run_spec import RunSpec, make
from tests.every import every

ALL = every("each", PRESETS.values())
AT_ONCE = ("long_traces",)  # takes less than a second, so it is not marked `long`


@ALL
def test_its_settings_can_be_run_and_each_has_an_effect(each: Preset) -> None:
    spec = spec_of(each)
    usual = {knob.key: knob.default for knob in spec.declared}
    for key, value in each.knobs.items():
        assert spec.knobs[key] == value != usual[key] or key in PRESETS[each.beside].knobs, f"{key} changes nothing"
        assert not inactive.reason(key, spec.knobs), key


@ALL
def test_it_says_three_things_and_where_to_look(each: Preset) -> None:
    assert len(each.look) == 3 and all(sentence.endswith(".") for sentence in each.look)
    spec = spec_of(each)
    assert each.chart in with_switched(spec.row.charts(spec.task_row), spec.knobs)
    names = ["run", "beside"] if each.beside else ["run"]
    assert all(run in names for run, _ in parse(each.claim, names).reads)


@ALL
def test_its_picture_is_recorded(each: Preset) -> None:
    curves = recorded()[each.key].curves
    assert recorded()[each.key].settings == each.settings, "run python -m docs.record_presets"
    assert set(curves) == {*each.drawn} and all(2 < len(values) <= record_presets.MOST for values in curves.values())


def test_nothing_is_recorded_of_presets_that_are_gone_and_the_file_is_small() -> None:
    assert recorded().keys() == PRESETS.keys() and RECORDED.stat().st_size < 30_000
    assert json.loads(RECORDED.read_text(encoding="utf-8"))


@every("each", [each for each in PRESETS.values() if each.beside])
def test_two_presets_that_stand_together_make_equally_many_updates(each: Preset) -> None:
    other = PRESETS[each.beside]
    assert other.beside == each.key and other.kind == each.kind and other.task == each.task
    assert _updates(spec_of(each)) == _updates(spec_of(other))


def _updates(spec: RunSpec) -> int:
    return spec.steps * updates(spec.knobs) * int(spec.knobs.get("epochs", 1))


@ALL
def test_a_run_is_known_by_its_settings_whatever_its_seed(each: Preset) -> None:
    assert preset_of(spec_of(each, seed=3)) is each
    assert preset_of(unwatched(spec_of(each))) is each != preset_of(replace(spec_of(each), model="small"))


def test_other_settings_are_no_preset() -> None:
    assert preset_of(make(algorithm_key="grpo", task_key="sort", knobs={"beta": 0.07})) is None
    assert preset_of(make(algorithm_key="grpo", task_key="sort", model="small")) is None
    assert preset_of(make(algorithm_key="grpo", task_key="sort", knobs={"sft_steps": 0}, steps=60)) is None


def test_an_unknown_preset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(LabError, match="did you mean 'no_clip'"):
        preset("noclip")


@pytest.mark.parametrize("each", [pytest.param(each, id=key, marks=() if key in AT_ONCE else pytest.mark.long)
                                  for key, each in PRESETS.items()])
def test_what_it_promises_happens(each: Preset) -> None:
    found = record_presets.verdict(each)
    assert found.says == "holds", found
