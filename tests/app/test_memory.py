"""The fold with what the next run needs of the memory: counted once it is open, then beside every knob that moves."""

from dataclasses import asdict, replace

import pytest

from app import memory as view
from labcore import machine
from labcore.llm.sizing import memory, passes, ways
from labcore.runs.spec.run_spec import RunSpec, make
from tests.app.seeding import html
from tests.llm.sizing.test_memory import SIZES
from tests.words import says


@pytest.fixture
def told(asked, monkeypatch):
    """told(free) has the device so many bytes free, and the job find the same sizes of every run."""
    asked.reply = lambda spec: {"sizes": [asdict(SIZES) for _ in spec["specs"]]}
    monkeypatch.setattr(passes, "OF_SMALL", passes.ON_PROCESSOR)  # so that small sizes need as much as large ones
    monkeypatch.setattr(machine, "device_kind", lambda name: "cpu")
    return lambda free: monkeypatch.setattr(machine, "free_memory", lambda name: free)


def test_the_fold_is_counted_when_it_is_opened_and_follows_the_knobs(page, asked, told):
    told(10**9)
    test = page("llm", algorithm="grpo", model="tiny")
    assert view.TITLE in [each.label for each in test.expander] and not asked.asked, "nobody has opened it"
    test.session_state[view.KEY] = True
    test.run()
    assert "It fits: it needs about " in html(test) and "1.0 GB are free now." in html(test)
    assert "256 rows of 5 + 8 tokens at once" in html(test)
    next(each for each in test.slider if each.label.startswith("Group size")).set_value(16).run()
    assert "512 rows of 5 + 8 tokens at once" in html(test)
    assert [[RunSpec.from_json(text).knobs["group_size"] for text in spec["specs"]] for spec in asked.asked] == [
        [8], [16]], "another network is asked for only where this one does not fit"


def test_what_does_not_fit_is_told_by_the_names_of_the_knobs(page, asked, told):
    large, spec = replace(SIZES, layers=40, hidden=512), make(algorithm_key="grpo", task_key="sort")
    asked.reply = lambda spec: {"sizes": [asdict(large) for _ in spec["specs"]]}
    told(int(0.8 * memory.Estimate(spec, large).peak))
    test = page("llm", algorithm="grpo", task="sort", model="tiny")
    test.session_state[view.KEY] = True
    test.run()
    assert "It does not fit: " in html(test)
    assert says(html(test), "make it fit", "Gradient checkpointing to on", "Prompts per step P to 16",
                "Group size G to 4")
    assert [len(spec["specs"]) for spec in asked.asked] == [1, len(ways.others(spec))]


def test_a_batch_that_may_not_fit_is_said_beside_run_without_opening_anything(page, asked, told):
    told(10**7)
    test = page("llm", algorithm="grpo", model="tiny", prompts_per_step="1024", group_size="1024")
    assert "Ready, with warnings.</b> It does not fit: it needs about " in html(test)
    assert "See “Memory on this device” below" in html(test)
    for label in ("Prompts per step", "Group size"):
        next(each for each in test.slider if each.label.startswith(label)).set_value(16).run()
    assert "<b>Ready.</b>" in html(test) and len(asked.asked) == 2, "a usual batch is not asked for"


def test_the_fold_is_drawn_from_what_was_asked_above_it(page, asked, told):
    told(10**12)
    test = page("llm", algorithm="grpo", model="tiny", prompts_per_step="1024")
    test.session_state[view.KEY] = True
    test.run()
    assert "<b>Ready.</b>" in html(test) and "It fits: it needs about " in html(test)
    assert len(asked.asked) == 1


def test_a_model_without_sizes_is_a_sentence(page, asked, told):
    told(None)
    asked.reply = lambda spec: {"sizes": ["The model has no layers."]}
    test = page("llm", algorithm="grpo", model="tiny")
    test.session_state[view.KEY] = True
    test.run()
    assert "The model has no layers." in [each.value for each in test.caption]
