"""Pictures are made beside a loop: the loop alone learns the same, and a look is one of its own step."""

from pkgutil import resolve_name

import pytest
import torch

from labcore.llm.loops.stages import Collected, Learnt, Ready, Taught, Updated
from labcore.runs.spec.session import Record
from tests.every import now
from tests.llm.tools import records, session, weights

ADDED = {"sampling/logp_difference"}  # what the pictures' tokens measure


def alone(started):
    """The stages of a session's loop, with nobody beside it."""
    return [*resolve_name(started.spec.kind_row.loops[started.spec.row.loop])(started)]


@pytest.mark.parametrize("algorithm", now(["grpo", "ppo", "dpo", "online_dpo", "sft"], "dpo"))
def test_a_loop_alone_learns_the_same(algorithm):
    bare, seen = session(algorithm, steps=5), session(algorithm, steps=5)
    stages = [stage for stage in alone(bare) if isinstance(stage, Record)]
    watched = records(seen, pictures=True)
    assert not any(record.line or record.look for record in stages)
    assert any(record.look or record.samples for record in watched)
    for one, other in zip(stages, watched, strict=True):
        assert one.metrics == {key: value for key, value in other.metrics.items() if key not in ADDED}
    for name in seen.models:
        assert torch.equal(weights(bare.models[name]), weights(seen.models[name]))


def test_the_stages_of_an_online_step():
    found = alone(session("grpo", steps=1, updates_per_batch=2, mini_batches=2))
    assert [type(stage) for stage in found] == [Collected, *[Updated, type(None)] * 3, Updated, Learnt, Record]


@pytest.mark.parametrize("algorithm", ["dpo", "sft"])
def test_the_stages_of_a_step_that_samples_nothing(algorithm):
    assert [type(stage) for stage in alone(session(algorithm, steps=2))] == [Ready, Taught, Record] * 2


@pytest.mark.parametrize("algorithm", now(["grpo", "dpo"], "grpo"))
def test_a_look_is_one_of_its_step_though_a_knob_was_changed_since(algorithm):
    started = session(algorithm, steps=2, beta=0.25)
    record = [record for record in started.run() if record is not None][-1]
    started.knobs["beta"] = 7.0
    samples, _ = record.look()
    assert samples["beta"] == 0.25 and samples["step"] == 2
