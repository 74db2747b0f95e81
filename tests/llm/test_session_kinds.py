"""Each kind of session with LoRA, another precision of its sampler, groups of before, or a teacher: it runs, and a fork
of its checkpoint goes on."""

from dataclasses import replace

import pytest
import torch

from labcore.catalog.llm.tasks import SORT_SCORER, SORT_TEACHER
from labcore.llm.networks import learning, learnt
from labcore.llm.session import LlmSession
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import base_spec, make
from tests.every import now
from tests.llm.tools import quietly, records

BASE = bases.SHIPPED / base_spec(make(algorithm_key="grpo", task_key="sort")).hash() / "model"  # right in 40 %
LORA = {"lora_rank": 2, "lora_alpha": 4}
SCORED = {"reward_source": "process_reward", "reward_model": SORT_SCORER}
OLD = {"staleness": 1, "replay_share": 0.5, "sampler_dtype": "bf16"}
SMALL = {"prompts_per_step": 8, "group_size": 4, "sequences_per_step": 4, "eval_prompts": 4, "eval_answers": 4,
         "pairs_per_step": 2}
KINDS = {
    "process reward model": ("prm", {}), "process reward model, LoRA": ("prm", LORA),
    "process rewards, LoRA": ("grpo_process", {**SCORED, **LORA}),
    "process rewards, PPO, LoRA": ("ppo", {**SCORED, **LORA, "step_reward": "min_form"}),
    "process rewards, LoRA, old samples": ("grpo_process", {**SCORED, **LORA, **OLD}),
    "teacher": ("opd", {"teacher": SORT_TEACHER}), "teacher, LoRA": ("opd", {"teacher": SORT_TEACHER, **LORA}),
    "GKD, LoRA": ("gkd", {"teacher": SORT_TEACHER, **LORA}), "old samples": ("grpo", OLD),
    "sampler in bf16, LoRA": ("grpo", {"sampler_dtype": "bf16", **LORA})}


@pytest.mark.parametrize("kind", now([*KINDS], "process rewards, LoRA, old samples"))
def test_it_runs_and_its_fork_goes_on(kind, tmp_path):
    algorithm, knobs = KINDS[kind]
    known = {knob.key for knob in make(algorithm_key=algorithm, task_key="sort").row.knobs}
    spec = make(algorithm_key=algorithm, task_key="sort", steps=3, model=str(BASE), device="cpu",
                knobs={**{key: value for key, value in SMALL.items() if key in known}, **knobs})
    with quietly():
        started = LlmSession.start(spec)
        before, going = moved(started), (record for record in started.run() if record is not None)
        assert [next(going).step, next(going).step] == [1, 2] and not torch.equal(before, moved(started))
        started.save(tmp_path)
        forked = LlmSession.start(spec, resume=tmp_path).fork(replace(spec, parent=("parent", 2)))
        assert [record.metrics for record in records(forked)] == [next(going).metrics], "a twin repeats its parent"


def moved(session: LlmSession) -> torch.Tensor:
    """All weights that the session learns."""
    return torch.cat([weight.detach().flatten().clone() for name in learning(session.spec, session.knobs)
                      for weight in learnt(session.models[name])])
