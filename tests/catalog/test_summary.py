"""The summary of an algorithm says of a run only what its knobs do."""

import re

import pytest

from labcore.catalog.kinds import KINDS, algorithm
from labcore.catalog.presets import PRESETS
from labcore.catalog.summary import summary_of
from labcore.runs.presets import spec_of


@pytest.mark.parametrize("values, said", [
    ({}, "Compares each completion with its own group: no critic. Ratios are clipped per token. The KL is in the "
         "loss."),
    ({"beta": 0.0}, "Compares each completion with its own group: no critic. Ratios are clipped per token."),
    ({"kl_placement": "reward", "surrogate": "soft_gate"}, "Compares each completion with its own group: no critic."),
    ({"clip_low": 1.0, "clip_high": 100.0}, "Compares each completion with its own group: no critic. The KL is in the "
                                            "loss.")])
def test_a_clip_and_a_kl_are_said_where_they_are_there(values, said):
    assert summary_of(algorithm("grpo", "llm"), values) == said


def test_a_row_at_its_defaults_is_said_whole():
    for kind in KINDS.values():
        for row in kind.algorithms.values():
            assert summary_of(row, {}) == row.summary


@pytest.mark.parametrize("key", [key for key in PRESETS if "no_clip" in key])
def test_a_preset_without_a_clip_is_not_said_to_clip(key):
    spec = spec_of(PRESETS[key], 0)
    assert re.search("[Cc]lip", spec.row.summary) and not re.search("[Cc]lip", summary_of(spec.row, spec.knobs))
