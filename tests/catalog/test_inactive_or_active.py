"""Each knob that is offered as active does act: in the first row that has it and, with `make test-long`, in each online
algorithm with the KL at each of its places."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
import torch

from labcore.catalog import choices
from labcore.catalog.inactive import RULES, reason
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.llm.probes.one_batch import as_of
from labcore.llm.session import LlmSession
from tests.llm.tools import SMALL, records, session, shake, spec, weights

ONLINE = [row.key for row in ALGORITHMS.values() if row.loop == "online"]
# Those that some setting of another knob can silence. Elsewhere: knobs of files, of a run's end, of the base and of the
# form of answers, which the small task has none of.
ASKED = {key for rule in RULES for key in rule.knobs} | {
    key for family in choices.FAMILIES for choice in family.members for key in choice.needs}
ELSEWHERE = {"teacher", "reward_model", "reward_function", "reward_weights", "judge_url", "judge_model",
             "judge_instruction", "uncertainty_weight", "stop_gold_fall", "lora_alpha", "sft_target",
             "context_template",
             "format_weight",
             "tracker_half_life",  # from the second visit of a prompt on
             "recompute_logprobs", "importance_mode",  # in fp32 by the rounding of the first update alone
             "max_new_tokens"}
PER_PLACE = {"beta", "kl_estimator"}
SIZE: dict[str, Value] = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 12, "learning_rate": 0.01}
# A row that always recomputes log-probs is offered the threshold at one update too, where it acts in bf16 alone.
OF_ROW: Mapping[str, dict[str, Value]] = {"icepop": {"updates_per_batch": 2}, "ppo": {"mini_batches": 2}}
STRONG = {"beta": (0.0, 5.0), "adaptive_kl_target": (1e-4,), "adaptive_kl_horizon": (1.0,), "entropy_target": (20.0,),
          "sft_decay_steps": (1,), "cov_high": (0.0,)}
WITH: Mapping[str, dict[str, Value]] = {  # what makes a small run feel it
    "adaptive_kl_target": {"beta": 0.3, "adaptive_kl_horizon": 1.0},
    "adaptive_kl_horizon": {"beta": 0.3, "adaptive_kl_target": 1e-4}, "kl_estimator": {"beta": 1.0},
    "sft_focus": {"sft_weight": 0.5}, "sft_decay_steps": {"sft_weight": 0.5},
    "entropy_target": {"entropy_step": 0.5}, "entropy_step": {"entropy_target": 20.0},
    "cov_low": {"cov_share": 0.5}, "cov_high": {"cov_share": 0.5, "cov_low": -1e6},
    "off_policy_threshold": {"learning_rate": 0.1}, "resample_rounds": {"group_size": 2, "max_new_tokens": 2}}


def others(knob: Knob, held: Value) -> Iterator[Value]:
    """Other values of a knob: far ones first."""
    if knob.key in STRONG:
        yield from STRONG[knob.key]
    elif knob.choices:
        yield from (choice for choice in knob.choices if choice != held)
    elif isinstance(held, bool):
        yield not held
    else:
        yield from (value for value in (knob.low, *(knob.safe or ()), knob.high) if value not in (None, held))


def learnt(base: LlmSession, knobs: Mapping[str, Value]) -> torch.Tensor:
    """All numbers that two steps leave in the networks of `base`, which are as before afterwards."""
    before = {name: [parameter.clone() for parameter in network.parameters()] for name, network in base.models.items()}
    started = replace(as_of(base, spec(base.spec.algorithm, steps=2, **knobs)), task=base.task, optimizers={})
    started._equip()
    try:
        records(started)
        return torch.cat([weights(network) for network in started.models.values()])
    finally:
        with torch.no_grad():
            for name, found in before.items():
                for parameter, value in zip(base.models[name].parameters(), found, strict=True):
                    parameter.copy_(value)


def acts(base: LlmSession, given: Mapping[str, Value], knob: Knob, kept: dict[str, torch.Tensor]) -> bool:
    """Whether some other value of the knob leaves other networks. `kept` are those that the given ones left."""
    given = {**given, **WITH.get(knob.key, {})}
    held = kept.setdefault(str(given), torch.empty(0))
    if not len(held):
        held = kept[str(given)] = learnt(base, given)
    for value in others(knob, spec(base.spec.algorithm, **given).knobs[knob.key]):
        try:
            found = learnt(base, {**given, knob.key: value})
        except LabError:  # a mix that is refused says so by itself
            continue
        if found.shape != held.shape or not torch.allclose(found, held, rtol=0, atol=1e-6):
            return True
    return False


Places = dict[str, list[str]]  # for each place of the KL the knobs to try there


def offered(row: str) -> Places:
    """Where a row offers a knob as one that acts."""
    held = {knob.key: knob.default for knob in ALGORITHMS[row].knobs} | SMALL["online"] | OF_ROW.get(row, {})
    found: Places = {}
    for place in choices.KL_PLACEMENTS:
        asked = ASKED - ELSEWHERE if place == held["kl_placement"] else PER_PLACE
        found[place] = [knob.key for knob in ALGORITHMS[row].knobs if knob.key in asked and not reason(
            knob.key, {**held, **SIZE, "kl_placement": place, **WITH.get(knob.key, {})})]
    return found


def first_offers() -> dict[str, Places]:
    """Each knob in the first row that offers it."""
    seen: set[str] = set()
    found: dict[str, Places] = {}
    for row in ONLINE:
        for place, keys in offered(row).items():
            found.setdefault(row, {})[place] = [key for key in keys if key not in seen]
            seen |= {*keys}
    return {row: places for row, places in found.items() if any(places.values())}


FIRST = first_offers()


@pytest.mark.parametrize("row", FIRST)
def test_every_knob_that_is_offered_acts(row):
    all_act(row, FIRST[row])


@pytest.mark.long
@pytest.mark.parametrize("row", ONLINE)
def test_every_knob_that_is_offered_acts_in_every_row(row):
    all_act(row, offered(row))


def all_act(row: str, tried: Places) -> None:
    silent = []
    for place, keys in tried.items():
        given = {**SIZE, **OF_ROW.get(row, {}), "kl_placement": place}
        try:
            base = session(row, **given) if keys else None
        except LabError:
            continue
        if base:
            shake(base.policy)
            kept: dict[str, torch.Tensor] = {}
            silent += [(place, key) for key in keys if not acts(base, given, ALGORITHMS[row].knob(key), kept)]
    assert not silent, "they change nothing: give the reason in labcore/catalog/inactive.py"
