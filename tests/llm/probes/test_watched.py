"""Watched prompts: their probabilities are those of a direct forward pass, and watching changes nothing of a run."""

import json
import math

import pytest
import torch

from labcore.llm.probes import view, watched
from labcore.llm.probes.watched import Answer
from labcore.llm.rendering import encode_prompts
from labcore.llm.session import LlmSession
from labcore.tasks import own_reward
from labcore.tasks.task import Pair, Problem
from tests.every import now
from tests.llm.tools import alone, every_completion, records, session, weights

ALGORITHMS = ["grpo", "ppo", "dapo", "remax", "dpo", "online_dpo", "kto", "orpo", "sft"]


def own_prompts(folder):
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{a}+1=", "answer": str(a + 1)}) + "\n" for a in range(1, 6)))
    return file


def own_pairs(folder):
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{a}: ", "chosen": "yes", "rejected": "no"}) + "\n"
                            for a in range(1, 6)))
    return file


def made(algorithm, **given) -> LlmSession:
    started = session(algorithm, **given)
    if algorithm == "dpo":
        started.pairs = [Pair("abc="[:end], "ab", "ba", answer="abc") for end in (1, 2, 3, 4)]
    return started


def silent(monkeypatch):
    """Without watching."""
    class Nothing:
        def after(self, session):
            return []
    monkeypatch.setattr(watched, "before", lambda session, step: Nothing())


def sum_of(started, prompt: str, text: str, truncated: bool, temperature: float) -> float:
    """log π of a whole answer, one token at a time and without padding; nats"""
    tokenizer = started.tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*ids, *([] if truncated else [tokenizer.eos_token_id])]])
    with torch.no_grad():
        asked = encode_prompts(started.rendering, [Problem(prompt, "")], 60, started.device)
        logits = alone(started.policy, asked, ids)
    return float((logits / temperature).log_softmax(-1).gather(-1, ids[..., None]).sum())


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_watching_and_looking_change_no_number_of_a_run(algorithm, monkeypatch):
    def run(look):
        for due in ("line_due", "samples_due"):
            monkeypatch.setattr(view, due, lambda step: look)
        found = []
        started = made(algorithm, steps=3)
        for record in started.run():
            if record is not None:
                found.append(record)
                if look and record.look:
                    record.look()
        assert not look or any(record.samples for record in found)
        return [record.metrics for record in found], weights(started.policy), started.rng.random(), \
            started.generator.get_state()
    watching = run(look=True)
    silent(monkeypatch)
    without = run(look=False)
    assert watching[0] == without[0] and torch.equal(watching[1], without[1])
    assert watching[2] == without[2] and torch.equal(watching[3], without[3])


@pytest.mark.parametrize("algorithm", now(ALGORITHMS, "grpo", "dpo", "sft"))
def test_probabilities_are_those_of_the_weights_before_and_after(algorithm):
    started = made(algorithm, steps=1, **({} if algorithm == "sft" else {"temperature": 0.8}))
    temperature = 0.8 if "advantage" in started.knobs else 1.0
    before = view.kept(started)
    record = records(started, pictures=True)[0]
    groups = json.loads(json.dumps(record.samples["watched"], allow_nan=False))
    assert groups and all(group["answers"] for group in groups)

    def check(when):
        for group in groups:
            special = started.tokenizer.all_special_tokens  # whose text is read as other tokens
            plain = [answer for answer in group["answers"] if not any(token in answer["text"] for token in special)]
            assert plain
            for answer in plain:
                text = sum_of(started, group["prompt"], answer["text"], answer["truncated"], temperature)
                assert answer[f"logprob_{when}"] == pytest.approx(text, abs=2e-4)
                assert answer[when] == pytest.approx(math.exp(text), rel=1e-3)
    check("after")
    with view.going_back(started, before):
        check("before")
    moved = [answer["after"] != answer["before"] for group in groups for answer in group["answers"]]
    assert any(moved)


def test_all_answers_together_have_probability_one():
    """Counted out on a vocabulary of a few tokens: so those of any distinct answers sum to at most 1."""
    started = session("grpo")
    prompts = encode_prompts(started.rendering, [Problem("ab", "")], 60, started.device)
    few = torch.arange(4)
    policy = started.policy

    class Few(torch.nn.Module):
        """The policy with all but a few tokens ruled out."""

        config = policy.config

        def parameters(self, recurse=True):
            return policy.parameters(recurse)

        def forward(self, **inputs):
            output = policy(**inputs)
            logits = torch.full_like(output.logits, -torch.inf)
            logits[..., few] = output.logits[..., few]
            output.logits = logits
            return output
    ids, mask = every_completion(len(few), 3, eos=int(few[0]))
    answers = [watched.Answer(str(row), tuple(row[:count].tolist()))
               for row, count in zip(ids, mask.sum(1), strict=True)]
    sums = watched._sums(started, Few(), prompts, watched._padded([answers], started.device), 1.0)
    assert float(sums.exp().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("algorithm", ["grpo", "dpo", "sft"])
def test_answers_are_distinct_and_their_probabilities_sum_to_at_most_one(algorithm):
    group = records(made(algorithm, steps=1), pictures=True)[0].samples["watched"][0]
    keys = [(answer["text"], answer["truncated"]) for answer in group["answers"]]
    assert len({*keys}) == len(keys)
    ended = [answer["before"] for answer in group["answers"] if not answer["truncated"]]
    assert sum(ended) <= 1 + 1e-6


def test_rewards_and_advantages_follow_the_run_s_own_rule():
    started = session("grpo", steps=1, group_size=4)
    for group in records(started, pictures=True)[0].samples["watched"]:
        rewards = [answer["reward"] for answer in group["answers"] for _ in range(answer["count"])]
        assert len(rewards) == 4
        mean = sum(rewards) / 4
        std = (sum((reward - mean) ** 2 for reward in rewards) / 3) ** 0.5
        for answer in group["answers"]:
            if answer["count"]:
                assert answer["advantage"] == pytest.approx((answer["reward"] - mean) / (std + 1e-4), abs=1e-3)
            else:
                assert answer["reward"] is answer["advantage"] is None


@pytest.mark.parametrize("algorithm, count", [("grpo", 3), ("ppo", watched.SAMPLES), ("sft", watched.SAMPLES)])
def test_a_group_is_whole_and_others_have_some_samples(algorithm, count):
    size = {"grpo": {"group_size": 3}, "ppo": {"group_size": 1}}.get(algorithm, {})
    for group in records(session(algorithm, steps=1, **size), pictures=True)[0].samples["watched"]:
        assert sum(answer["count"] for answer in group["answers"]) == count


def test_a_pair_has_its_roles_and_its_margin():
    started = made("dpo", steps=1, beta=0.5)
    reference = weights(started.reference)
    group = records(started, pictures=True)[0].samples["watched"][0]
    sides = {answer.get("role"): answer for answer in group["answers"]}
    assert (sides["chosen"]["text"], sides["rejected"]["text"]) == ("ab", "ba")
    assert group["margin_before"] == pytest.approx(0, abs=1e-4), "the policy is the reference still"
    assert group["margin_after"] == pytest.approx(0.5 * sum(
        sign * (sides[role]["logprob_after"] - sides[role]["logprob_before"])
        for role, sign in (("chosen", 1), ("rejected", -1))), abs=1e-4)
    assert group["margin_after"] > 0 and torch.equal(reference, weights(started.reference))


@pytest.mark.parametrize("algorithm, file, task", [
    ("grpo", own_prompts, "prompts"), ("sft", own_prompts, "prompts"), ("dpo", own_pairs, "preferences")])
def test_own_files(algorithm, file, task, tmp_path):
    started = session(algorithm, letters=False, task=task, data=file(tmp_path), steps=1)
    groups = records(started, pictures=True)[0].samples["watched"]
    assert groups and all(group["answers"] for group in groups)
    if task == "preferences":
        assert {answer.get("role") for answer in groups[0]["answers"]} >= {"chosen", "rejected"}
        assert all(answer["exact"] is None for group in groups for answer in group["answers"])
    else:
        assert all(any(answer["exact"] for answer in group["answers"]) for group in groups)


def test_the_same_prompts_from_the_first_step_to_the_last_and_after_a_resume(tmp_path):
    started = session("grpo", letters=False, steps=5)
    done = [record for record in records(started, pictures=True) if record.samples]
    prompts = [[group["prompt"] for group in record.samples["watched"]] for record in done]
    assert len(done) == 2 and prompts[0] == prompts[1] and len({*prompts[0]}) == len(prompts[0])
    started.save(tmp_path)
    resumed = session("grpo", letters=False, steps=6, resume=tmp_path)
    assert [each.problem.prompt for each in watched.of(resumed)] == prompts[0]
    assert [each.problem.prompt for each in watched.of(session("grpo", letters=False, seed=1))] != prompts[0]


@pytest.mark.parametrize("algorithm", now(["grpo", "ppo", "dpo"], "dpo"))
def test_a_look_sees_what_the_step_would_have_shown(algorithm, monkeypatch):
    """Step 2 is not due; where it is made due, its samples and its line are the same."""
    run = made(algorithm, steps=2).run()
    looked = next(record for record in run if record is not None and record.step == 2).look()
    monkeypatch.setattr(view, "samples_due", lambda step: True)
    monkeypatch.setattr(view, "line_due", lambda done: True)
    due = records(made(algorithm, steps=2), pictures=True)[1]
    assert looked == (due.samples, due.line) and looked[0]["watched"]


def test_a_look_at_an_sft_step_evaluates_with_random_numbers_of_its_own():
    started = made("sft", steps=2, eval_every=50)
    looks = [record.look and record.look() for record in started.run() if record is not None]
    assert looks[0] is None and looks[1][0]["groups"] and looks[1][0]["watched"] and looks[1][1] is None


def test_a_large_network_is_not_copied_at_every_step(monkeypatch):
    monkeypatch.setattr(view, "KEPT", 10)
    started = session("grpo", steps=2)
    first, second = records(started, pictures=True)
    assert first.line and second.line is None
    assert view.kept(started) is None and view.kept(started, due=True)
    samples, line = next(session("grpo", steps=1).run()).look()
    assert samples is None and line is None, "the first step has both already"


def test_a_look_has_the_knobs_of_its_step(monkeypatch):
    """A knob may be set between the step and the look at it: what is drawn is of the step as it was made."""
    started = session("grpo", steps=3, beta=0.04)
    for record in started.run():
        if record is not None and record.step == 2:
            expected, _ = record.look()
            started.knobs |= {"beta": 0.5, "clip_low": 0.01, "group_size": 2, "temperature": 2.0}
            assert record.look()[0] == expected and expected["beta"] == 0.04
            break


def test_what_is_watched_does_not_depend_on_a_knob_that_was_moved():
    plain, moved = session("ppo"), session("ppo")
    moved.knobs["group_size"] = 16
    assert watched.of(plain) == watched.of(moved)


def test_answers_fit_beside_the_longest_prompt(monkeypatch):
    """Longer ones are cut, as the loops cut them."""
    started = session("sft")
    long = [Problem("a" * (started.context - 5), "b" * 40), Problem("c", "d" * 40)]
    monkeypatch.setattr(watched, "_asked", lambda alone, count: [(problem, None) for problem in long])
    assert {len(answer.ids) for each in watched.of(started) for answer in each.known} == {5}


@pytest.mark.parametrize("algorithm", now(["grpo", "ppo"], "ppo"))
def test_a_function_of_the_users_is_called_once_a_step_whatever_is_drawn(algorithm, tmp_path, monkeypatch):
    """With its whole batch: pictures take what it gave then, and show no reward where it gave none."""
    for name in ("_given", "_modules"):
        monkeypatch.setattr(own_reward, name, {})
    file = tmp_path / "mine.py"
    file.write_text("calls = []\ndef score(completions, **_):\n    calls.append(len(completions))\n"
                    "    return [len(each) % 3 for each in completions]\n")
    name = own_reward.register(f"{file}:score")
    calls = own_reward._given[name].__globals__["calls"]
    started = session(algorithm, steps=3, max_new_tokens=1, reward_source="own_function", reward_function=name)
    drawn = [record.samples or record.look()[0] for record in records(started, pictures=True)]
    shown = [group for samples in drawn for group in samples.get("watched", ())]
    assert calls == [16, 16, 16]
    rewards = [(answer["text"], answer["reward"]) for group in shown for answer in group["answers"] if answer["count"]]
    assert {None} < {reward for _, reward in rewards}
    assert all(reward in (None, len(text) % 3) for text, reward in rewards)
    assert all(answer["advantage"] is None for group in shown for answer in group["answers"])


def test_answers_of_the_reference_are_followed_only_where_some_come_again():
    once = [Answer(str(place), (place,)) for place in range(9)]
    assert watched._frequent(once) == [] and watched._frequent(once[:8]) == once[:8]
    assert watched._frequent([*once, once[3]])[0] == once[3] and len(watched._frequent([*once, once[3]])) == 8
