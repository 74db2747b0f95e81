"""Stale data and pools of prompts in other tools: OpenRLHF has a queue, the others say what they have instead."""

from labcore.exports.handover import openrlhf, trl, verl
from labcore.exports.handover.plan import Plan
from labcore.exports.handover.rules import lines
from labcore.runs.spec.run_spec import make


def plan(**knobs):
    return Plan("grpo-sort-0001", make(algorithm_key="grpo", task_key="sort", knobs=knobs))


def test_openrlhf_has_a_queue_and_cannot_sleep_beside_it():
    found, usual = openrlhf.settings(plan(staleness=2)), openrlhf.settings(plan())
    assert found["--train.async_queue_size"] == 2 and "--train.async_enable" in found
    assert "--vllm.enable_sleep" in usual and "--vllm.enable_sleep" not in found
    assert "--train.async_enable" not in usual


def test_what_a_tool_lacks_is_named_and_what_is_off_is_not():
    rules = {"GRPOTrainer": trl.RULES["GRPOTrainer"], "verl": verl.RULES["online"],
             "OpenRLHF": openrlhf.RULES["online"]}
    for tool, table in rules.items():
        on = {line.knob: line for line in lines(plan(
            staleness=2, staleness_order="mixed", replay_share=0.5, sampler_dtype="int8", prompt_pool=64, easiest=3),
            table, tool)}
        off = {line.knob: line for line in lines(plan(), table, tool)}
        for knob in ("staleness_order", "replay_share", "sampler_dtype", "prompt_pool", "easiest"):
            assert on[knob].note and on[knob].unsupported and not off[knob].unsupported, (tool, knob)
    tool, table = next(iter(rules.items()))
    [line] = [line for line in lines(plan(staleness=2), table, tool) if line.knob == "staleness"]
    assert "max_staleness" in line.note
