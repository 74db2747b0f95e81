"""The reference that follows the policy: how far, how often, and that a resumed run has it where it was."""


import pytest
import torch

from labcore.errors import LabError
from labcore.llm.moving_reference import follow_policy
from tests.llm.tools import records, session, shake, weights
from tests.references import golden

GOLDEN = golden("trl_sampler")["moved_reference"]


def test_the_weights_are_those_of_trl_s_callback(monkeypatch):
    """`SyncRefModelCallback._sync_target_model`, on two layers of a network."""
    made = session("grpo", reference_every=1, reference_mixup=GOLDEN["alpha"])
    for name, key in (("policy", "policy"), ("reference", "reference")):
        layer = torch.nn.Linear(2, 2)
        layer.load_state_dict({part: torch.tensor(value) for part, value in GOLDEN[key].items()})
        made.models[name] = layer
    follow_policy(made)
    for part, value in made.reference.state_dict().items():
        torch.testing.assert_close(value, torch.tensor(GOLDEN["moved"][part]))


@pytest.mark.parametrize("every, moves", [(1, [True] * 4), (2, [False, True, False, True]), (3, [False, False, True,
                                                                                                 False])])
def test_it_follows_after_every_so_many_updates(every, moves):
    made, found = session("grpo", reference_every=every, reference_mixup=0.5), []
    shake(made.policy)
    for made.updates in range(1, 5):
        before = weights(made.reference)
        follow_policy(made)
        found.append(not torch.equal(before, weights(made.reference)))
    assert found == moves


@pytest.mark.parametrize("algorithm", ["grpo", "dpo"])
def test_a_run_is_held_to_the_reference_as_it_has_moved(algorithm):
    """At a mixup of 1 the reference is the policy after each update; it never moves where the knob is 0."""
    made = session(algorithm, steps=2, reference_every=1, reference_mixup=1.0)
    begun = weights(made.reference)
    records(made)
    assert torch.equal(weights(made.reference), weights(made.policy)) and not torch.equal(begun, weights(made.policy))
    still = session(algorithm, steps=2)
    begun = weights(still.reference)
    records(still)
    assert torch.equal(weights(still.reference), begun)


@pytest.mark.parametrize("algorithm, knobs, said", [
    ("grpo", {"lora_rank": 2}, "With LoRA the reference is the frozen base"),
    ("simpo", {}, "SimPO holds no reference")])
def test_without_a_reference_of_its_own_it_is_refused(algorithm, knobs, said):
    with pytest.raises(LabError, match=said):
        session(algorithm, reference_every=1, **knobs)
