"""Measuring on held-out rows: it moves nothing of the run, and says what is true of the policy after the step."""

import json
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from labcore.catalog.metrics import METRICS
from labcore.llm.generation import Sampling, generate
from labcore.llm.loops import held_out, preference, reward_model, sft
from labcore.llm.pairs import Pairs
from labcore.llm.rendering import encode_answers, encode_examples
from labcore.llm.session import LlmSession
from labcore.runs.files import uploads
from labcore.runs.spec import activity
from labcore.runs.spec.activity import listening
from labcore.runs.spec.run_spec import make
from labcore.tasks.task import Epochs, draw, held_of
from tests.every import now
from tests.llm.chat_model import chat_folder, turns
from tests.llm.tools import quietly, records, session, weights

SUMS = [(f"{a}+{b}=", str(a + b)) for a in range(8) for b in range(8)]
EASY = {"verifier": "contains", "pattern": "1"}  # which a random model meets at times
LOOPS = [("grpo", "prompts"), ("sft", "prompts"), ("dpo", "prompts"), ("dpo", "preferences"), ("kto", "singles"),
         ("sft", "preferences"), ("reward_model", "preferences"), ("grpo", "text")]


@pytest.fixture
def data(tmp_path):
    """A file for each task, by its name."""
    rows = {"prompts": [{"prompt": asked, "answer": right} for asked, right in SUMS],
            "preferences": [{"prompt": asked, "chosen": right, "rejected": "99"} for asked, right in SUMS],
            "singles": [{"prompt": asked, "completion": right if good else "99", "label": good}
                        for asked, right in SUMS for good in (True, False)]}
    for name, lines in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "text.jsonl").write_text("".join(asked + right + "\n" for asked, right in SUMS) * 4, encoding="utf-8")
    return tmp_path


def started(data, algorithm, of, *, resume=None, **given):
    own = EASY if of == "prompts" else {"piece_length": 20, "prompt_length": 4} if of == "text" else {}
    task = "preferences" if of == "singles" else of
    return session(algorithm, letters=False, task=task, data=str(data / f"{of}.jsonl"), resume=resume,
                   **({"held_out_every": 2, "steps": 5} | own | given))


def held(record):
    return {key: value for key, value in record.metrics.items() if key.startswith("held_out/")}


# One algorithm that samples and one that does not; one for each kind of file. `make test-long` tries the others.
OF_LOOPS = now(LOOPS, ("grpo", "prompts"), ("dpo", "preferences"))
OF_FILES = now(LOOPS, ("grpo", "prompts"), ("dpo", "preferences"), ("kto", "singles"), ("grpo", "text"))


@pytest.mark.parametrize(("algorithm", "of"), OF_LOOPS)
def test_a_run_trains_the_same_whether_it_is_measured_or_not(data, algorithm, of):
    measured, not_measured = started(data, algorithm, of), started(data, algorithm, of)
    with_it = records(measured)
    with patch.object(held_out, "measured", return_value={}):
        without = records(not_measured)
    assert [record.metrics for record in without] == [
        {key: value for key, value in record.metrics.items() if key not in held(record)} for record in with_it]
    assert torch.equal(weights(measured.policy), weights(not_measured.policy))
    assert all(key in METRICS for record in with_it for key in record.metrics)
    due = [record.step for record in with_it if held(record)]
    assert due == ([] if algorithm == "reward_model" else [1, 2, 4, 5])  # before, every 2 steps, and at the end


@pytest.mark.parametrize(("algorithm", "of", "expected"), [
    ("grpo", "prompts", {"greedy", "accuracy", "pass@2", "pass@4", "reward", "mean_length", "truncated_frac", "rows"}),
    ("sft", "prompts", {"loss", "token_accuracy", "greedy", "accuracy", "reward", "mean_length", "truncated_frac",
                        "rows"}),
    ("sft", "preferences", {"loss", "token_accuracy", "rows"}),
    ("dpo", "preferences", {"pair_accuracy", "margin", "rows"}),
    ("kto", "singles", {"margin", "rows"})])
def test_each_loop_measures_what_it_learns(data, algorithm, of, expected):
    found = held(records(started(data, algorithm, of, steps=1))[0])
    assert {key.removeprefix("held_out/") for key in found} == expected
    assert found["held_out/rows"] == (12 if of == "singles" else 6)


def test_held_out_pairs_are_what_a_reward_model_is_measured_on(data):
    made = started(data, "reward_model", "preferences", steps=3)
    with patch("labcore.llm.loops.reward_model.evaluate", return_value=({}, {})) as evaluate:
        records(made)
    assert evaluate.call_args.args[1] == list(held_of(made.task)) and evaluate.call_count == 2  # step 1 and the last


@pytest.mark.parametrize(("algorithm", "of"), OF_FILES)
def test_no_held_out_row_is_trained_on(data, algorithm, of):
    made, given = started(data, algorithm, of, steps=6), []
    for name in ("problems", "pairs", "singles"):
        if draw := getattr(made.task, name, None):
            setattr(made.task, name, lambda count, rng, draw=draw: given.extend(draw(count, rng)) or given[-count:])
    rows = getattr(made.task, "rows", None)
    with patch.object(held_out, "measured", return_value={}):
        records(made)
    asked = {row.prompt for row in (given or rows)}  # the reward model's loop takes the rows themselves
    texts = {row.prompt + getattr(row, "answer", "") for row in given}
    assert not asked & {row.prompt for row in held_of(made.task)} if of != "text" else not texts & {
        row.prompt + row.answer for row in held_of(made.task)}
    assert len(asked) > 20


def test_accuracies_are_those_of_the_policy_after_the_step(data):
    """Greedy and sampled, counted by hand on the same prompts; the first record is of the policy before training."""
    made = started(data, "grpo", "prompts", steps=3, held_out_every=1, held_out_prompts=4, held_out_samples=3)
    with patch("labcore.llm.loops.held_out.generate", side_effect=generate) as drawn:
        run = made.run()
        for step in (1, 2, 3):
            before = weights(made.policy)
            drawn.reset_mock()
            record = next(record for record in run if record is not None)
            assert record.step == step
            alone = held_out.watched.apart(made, step, held_out.STREAM)
            greedy = generate(alone, made.policy, list(made.task.held)[:4], 1,
                              replace(Sampling.of(made.knobs), greedy=True))
            right = [made.task.score(problem, text).exact
                     for problem, text in zip(made.task.held, greedy.texts, strict=False)]
            if step > 1 or torch.equal(before, weights(made.policy)):
                assert record.metrics["held_out/greedy"] == sum(right) / 4
            assert [len(call.args[2]) * call.args[3] for call in drawn.call_args_list] == [12, 4]
            assert record.metrics["held_out/rows"] == 4
            assert 0 <= record.metrics["held_out/accuracy"] <= record.metrics["held_out/pass@2"] <= 1
            assert "held_out/pass@4" not in record.metrics


@pytest.mark.parametrize(("algorithm", "of", "own", "expected"), [
    ("grpo", "prompts", {"held_out_every": 2}, 2),
    ("grpo", "prompts", {"prompts_per_step": 4}, 25),  # 6 rows: 60 / (0.1 · 96) is less
    ("grpo", "prompts", {"prompts_per_step": 1, "group_size": 2, "updates_per_batch": 1}, 100),  # 60 / (0.1 · 6)
    ("grpo", "prompts", {"prompts_per_step": 1, "group_size": 2, "updates_per_batch": 4}, 50),  # 60 / (0.1 · 12)
    ("sft", "prompts", {"sequences_per_step": 4, "held_out_samples": 4}, 150),  # 60 / (0.1 · 4)
    ("sft", "prompts", {"sequences_per_step": 4, "held_out_samples": 4, "held_out_prompts": 3}, 75),
    ("dpo", "prompts", {"pairs_per_step": 4}, 75), ("dpo", "preferences", {"pairs_per_step": 1}, 30)])
def test_evaluations_without_an_interval_are_a_tenth_of_the_steps_between_them(data, algorithm, of, own, expected):
    """Counted in completions, by hand: the steps of a run never depend on a clock."""
    assert held_out.interval(started(data, algorithm, of, **({"held_out_every": 0} | own))) == expected


def test_a_run_without_an_interval_that_is_resumed_is_measured_at_the_same_steps(data, tmp_path, monkeypatch):
    monkeypatch.setattr(held_out, "EVERY", 2)
    own = {"steps": 7, "held_out_every": 0, "held_out_prompts": 1}  # 20 / (0.1 · 80)
    whole = started(data, "grpo", "prompts", **own)
    found = []
    for record in whole.run():
        if record is not None:
            found.append(record)
            if record.step == 3:
                whole.save(tmp_path / "three")
    again = records(started(data, "grpo", "prompts", resume=tmp_path / "three", **own))
    assert [record.step for record in found if held(record)] == [1, 3, 6, 7]
    assert [held(record) for record in again] == [held(record) for record in found[3:]]


def test_an_evaluation_says_how_far_it_is(data):
    made, heard = started(data, "grpo", "prompts", held_out_prompts=4), []
    with listening(lambda *given: heard.append(str(activity.now(*given)))):
        held_out.measured(made)
    words = "{} completions of held-out prompts 1 to 4 of 4, sampling {} of 6 tokens"
    assert heard[0] == words.format("sampled", 0) and words.format("greedy", 5) in heard


def test_only_pretrained_weights_have_no_interval_by_default(data, tmp_path):
    path, folder = str(data / "prompts.jsonl"), chat_folder(tmp_path / "model")
    built_in, real = (make(algorithm_key="grpo", task_key="prompts", data=path, **model)
                      for model in ({}, {"model": str(folder)}))
    assert (built_in.knobs["held_out_every"], real.knobs["held_out_every"]) == (25, 0)


def test_completions_are_drawn_in_parts_no_larger_than_the_runs_own(data):
    made = started(data, "grpo", "prompts", steps=1, held_out_samples=20)
    with patch("labcore.llm.loops.held_out.generate", side_effect=generate) as drawn:
        found = held_out.measured(made)
    assert [len(call.args[2]) * call.args[3] for call in drawn.call_args_list] == [*[20] * 6, 6]
    assert found["held_out/rows"] == 6 and "held_out/pass@16" in found and "held_out/pass@32" not in found


@pytest.mark.parametrize(("algorithm", "task"), [("sft", "add"), ("dft", "add"), ("gkd", "sort")])
def test_the_loss_is_the_runs_own_on_the_answers_except_for_dft(algorithm, task):
    """DFT's own loss falls as the policy finds the answers impossible, so the best checkpoint cannot be found by it."""
    made = session(algorithm, letters=False, task=task)
    problems = [replace(each, answer=each.answer[n % 3:]) for n, each in enumerate(made.task.problems(6, made.rng))]
    prompts, answers = encode_answers(made.rendering, problems, [each.answer for each in problems], made.context,
                                      made.device)
    expected = sft.gradients(made, prompts, answers)
    if algorithm == "dft":
        alike = session("sft", letters=False, task=task)
        expected["loss"] = sft.gradients(alike, prompts, answers)["loss"]
    assert held_out.loss(made, problems) == pytest.approx(
        {"loss": expected["loss"], "token_accuracy": expected["mean_token_accuracy"]})
    padding, likeliest = ~answers.mask, sft._at_answers(made, prompts, answers.ids)[2]
    answers.ids[padding] = likeliest[padding]
    assert padding.any() and sft.given_answers(made, prompts, answers)[1] == expected["mean_token_accuracy"]


def test_the_loss_is_that_of_every_answer_of_a_conversation(tmp_path):
    """As SFT learns it, so that the two losses are of the same tokens."""
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps({"messages": turns("2?", "4", f"and {n}?", f"{n}")}) + "\n"
                                                  for n in range(20)), encoding="utf-8")
    made = LlmSession.start(make(algorithm_key="sft", task_key="prompts", data=str(tmp_path / "talks.jsonl"),
                                 knobs={**EASY, "max_new_tokens": 6},
                                 model=str(chat_folder(tmp_path / "model")), device="cpu"))
    problems = list(made.task.held)
    examples = encode_examples(made.rendering, problems, made.context, made.device)
    expected = sft.gradients(made, examples.prompts, examples.answers)
    assert held_out.loss(made, problems)["loss"] == pytest.approx(expected["loss"])


@pytest.mark.parametrize("good", [True, False])
def test_a_file_of_labels_may_hold_out_rows_of_one_label(data, good):
    made = started(data, "sft", "singles", steps=2)
    made.task.take(made.task.rows, [row for row in held_of(made.task) if row.label == good])
    assert {key.removeprefix("held_out/") for key in held(records(made)[0])} == (
        {"loss", "token_accuracy", "rows"} if good else set())


def test_pairs_are_measured_as_an_update_measures_them(data):
    made = started(data, "dpo", "preferences", steps=3, learning_rate=0.05)
    records(made)
    pairs = list(made.task.held)
    found = held_out.pairs(made, pairs)
    expected, _ = preference.update(made, Pairs(pairs))
    assert found == pytest.approx({"pair_accuracy": expected["rewards/accuracies"],
                                   "margin": expected["rewards/margins"]})
    assert abs(found["margin"]) > 0


@pytest.mark.parametrize(("algorithm", "of"), now(LOOPS, ("sft", "prompts")))
def test_a_resumed_run_continues_its_epoch_bit_for_bit(data, tmp_path, algorithm, of):
    whole = started(data, algorithm, of, steps=5)
    with quietly():
        run = (record.metrics for record in whole.run() if record is not None)
        begun = [next(run), next(run)]
        whole.save(made := tmp_path / "checkpoint")
        expected = [*run]
    resumed = started(data, algorithm, of, steps=5, resume=made)
    assert [record.metrics for record in records(resumed)] == expected
    assert expected[-1]["epoch"] > begun[-1]["epoch"] > 0


@pytest.mark.parametrize(("algorithm", "of"), now(
    [("grpo", "prompts"), ("sft", "prompts"), ("dpo", "preferences"), ("online_dpo", "prompts"),
     ("reward_model", "preferences"), ("kto", "singles")],
    ("sft", "prompts"), ("kto", "singles")))
def test_rows_are_drawn_once_in_each_epoch(data, algorithm, of):
    size = {"grpo": "prompts_per_step", "sft": "sequences_per_step"}.get(algorithm, "pairs_per_step")
    made, drawn, take = started(data, algorithm, of, steps=8, max_new_tokens=2, **{size: 19}), [], Epochs.take

    def spied(self, size, count):
        found = take(self, size, count)
        drawn.extend(index for _, index in found)
        return found
    with patch.object(Epochs, "take", spied), patch.object(held_out, "measured", return_value={}):
        found = records(made)
    rows = len(made.task.rows)
    assert [record.metrics["epoch"] for record in found] == pytest.approx([19 * step / rows for step in range(1, 9)])
    assert len(drawn) == 152
    for start in range(0, 152 - rows, rows):
        assert sorted(drawn[start: start + rows]) == list(range(rows))


def test_labelled_pairs_leave_no_row_of_the_file_out(data):
    labels = [{"prompt": "x=", "chosen": str(n), "rejected": "no"} for n in range(5)]
    place = uploads.keep("labels.jsonl", "\n".join(map(json.dumps, labels)).encode()).parent.name
    made, given = started(data, "reward_model", "preferences", steps=29, labelled_pairs=place), []
    unlearnt = (0.0, torch.zeros(1, 2), 0)
    with patch.object(reward_model, "gradients", side_effect=lambda session, pairs: given.extend(pairs) or unlearnt), \
            patch("labcore.llm.loops.reward_model.evaluate", return_value=({}, {})):
        records(made)
    counts = Counter(pair.prompt for pair in given)  # half of each batch of 4 is labelled
    assert counts.pop("x=") == 58 and set(counts.values()) == {1} and len(counts) == 58
    assert max(Counter(pair.chosen for pair in given if pair.prompt == "x=").values()) == 12


def test_fresh_pairs_to_measure_a_reward_model_on_are_the_same_wherever_its_epoch_stands(data):
    made = started(data, "reward_model", "prompts", pairs="policy_each_step")
    expected = reward_model.split(made)
    records(made, pictures=False)
    assert made.drawn[0] != (0, 0, 0)
    assert [pair.prompt for pair in reward_model.split(made)[1]] == [pair.prompt for pair in expected[1]]


def test_a_batch_larger_than_the_file_goes_round(tmp_path):
    rows = [{"prompt": f"{n}=", "answer": str(n)} for n in range(3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = records(started(tmp_path, "grpo", "prompts", steps=2, prompts_per_step=7))
    assert [record.metrics["epoch"] for record in found] == pytest.approx([7 / 3, 14 / 3])
    assert "fewer than 20, so none is held out" in found[0].notes[0] and not held(found[0])


def test_what_is_true_of_the_whole_run_is_said_once_and_again_by_a_fork(tmp_path):
    rows = [{"prompt": f"{n}=", "answer": str(n)} for n in range(3)] + [{"prompt": "1" * 60, "answer": "1"}]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    made = started(tmp_path, "sft", "prompts", long_prompts="skip")
    run = made.run()
    said = [next(record for record in run if record is not None).notes for _ in range(2)]
    assert len(said[0]) == 2 and "none is held out" in said[0][0] and "left out: line 4" in said[0][1]
    assert said[1] == ()
    made.save(tmp_path / "checkpoint")
    resumed = started(tmp_path, "sft", "prompts", long_prompts="skip", resume=tmp_path / "checkpoint")
    assert [record.notes for record in records(resumed)] == [()] * 3
    forked = started(tmp_path, "sft", "prompts", long_prompts="skip", resume=tmp_path / "checkpoint")
    assert records(forked.fork(forked.spec))[0].notes == said[0]


def test_a_fork_continues_the_epoch_of_its_parent(data):
    made = started(data, "sft", "prompts", steps=2)
    records(made)
    place = made.drawn
    assert place[0] == (0, 16, 58)
    forked = made.fork(replace(made.spec, steps=4, parent=("sft-prompts-1", 2)))
    assert forked.drawn == place
    assert records(forked)[-1].metrics["epoch"] == pytest.approx(32 / 58)


def test_rows_at_random_are_drawn_as_they_were(data):
    """Runs from before epochs: the prompts of a step are those of its own random numbers, and no epoch is logged."""
    made = started(data, "grpo", "prompts", steps=2, order="random", held_out=0)
    with patch("labcore.tasks.prompts.draw", side_effect=draw) as drawn:
        found = records(made)
    assert all("epoch" not in record.metrics for record in found)
    first = next(call.args[2] for call in drawn.call_args_list if call.args[1] == 4)
    assert first.bit_generator.seed_seq.entropy == (0, 0) and len(made.task.rows) == 64
