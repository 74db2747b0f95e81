"""Episodes as completions: tokens of the model and of the environment, rewards at turns, and an exact gradient."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import pad

from labcore.errors import LabError
from labcore.llm import episodes, generation
from labcore.llm.batch import Completions, padded_completions, padded_prompts
from labcore.llm.experience import collect
from labcore.llm.generation import Sampling, generate
from labcore.llm.loops import online
from labcore.llm.nets.tokenizer import letter_tokenizer
from labcore.llm.probes.token_records import Met
from labcore.llm.rendering import Rendering
from labcore.llm.rewards import verifier
from labcore.llm.rollout import credit, rewards_of_tokens
from labcore.maths import turns
from labcore.maths.advantages import leave_one_out, turn_return
from labcore.maths.logprobs import selective_log_softmax
from labcore.runs.spec.run_spec import make
from labcore.tasks.environment import Begun, Episode, Step
from labcore.tasks.task import Problem
from tests.environments import Plays
from tests.llm.tools import alone, model, records, session
from tests.words import saying, says


def playing(algorithm="reinforce", task=None, **given):
    started = session(algorithm, letters=False, max_new_tokens=given.pop("max_new_tokens", 40), **given)
    started.task = task or Plays()
    return started


def test_the_tokens_of_an_episode_are_those_of_its_text_and_only_the_models_count():
    started = playing(group_size=4)
    batch = collect(started).batch
    assert len(set(batch.texts)) > 4
    for row, episode in enumerate(batch.texts):
        ids, own = started.rendering.episode(episode)
        length = int(batch.completions.extents[row])
        got, mask = batch.completions.ids[row, :length], batch.completions.mask[row, :length]
        decoded = started.tokenizer.decode([token for token in got.tolist() if token not in started.rendering.ends])
        lines = [part for move in episode.moves for part in (move.text, move.observation)][:-1]
        assert decoded == "".join(text if place % 2 == 0 else f"\n{text}\n" for place, text in enumerate(lines))
        assert int(turns.count(batch.completions.mask)[row]) == len(episode.moves)
        if len(ids) == length:  # every turn ended by itself
            assert ids == got.tolist() and own == mask.tolist()
        assert not batch.completions.mask[row, length:].any()


def test_a_group_begins_in_one_state_and_goes_apart():
    batch = collect(playing(group_size=4)).batch
    for place, problem in enumerate(batch.problems):
        group = batch.texts[4 * place: 4 * place + 4]
        assert problem.prompt == problem.columns["first"] and len(set(group)) > 1


def test_log_probs_are_those_of_the_whole_context():
    """The sampler's, turn by turn, beside one pass over each row with no padding at all."""
    started = playing()
    batch = collect(started).batch
    done = batch.completions
    outputs = alone(started.policy, batch.prompts, done.ids)
    expected = selective_log_softmax(outputs, done.ids).masked_fill(~done.mask, 0)
    assert torch.allclose(done.sampled_logprobs, expected, atol=1e-5) and (done.sampled_logprobs < 0).any()


def test_limits_of_tokens_cut_an_episode_and_limits_of_turns_end_it():
    never = type("Never", (), {"reset": lambda self, row: "?", "step": lambda self, text: Step("go on", 0.0, False)})
    started = playing(task=Plays(never, max_turns=4))
    done = collect(started).batch
    assert {len(episode.moves) for episode in done.texts} == {4} and not done.completions.truncated.any()
    assert collect(started).metrics["episodes/unended_frac"] == 1
    started = playing(task=Plays(never, max_turns=4), max_new_tokens=11)
    done = collect(started).batch
    assert done.completions.truncated.any() and done.completions.ids.shape[1] <= 11
    for row, episode in enumerate(done.texts):
        assert bool(done.completions.truncated[row]) == (len(episode.moves) < 4)
    short = type("Short", (), {"reset": lambda self, row: "?", "step": lambda self, text: Step("a", 0.0, False)})
    done = collect(playing(task=Plays(short, max_turns=4, turn_tokens=10), max_new_tokens=20, prompts_per_step=8)).batch
    assert done.completions.ids.shape[1] == 20, "turns of one step have room for different numbers of tokens"


def test_no_token_is_drawn_beyond_the_limit_of_an_episode(monkeypatch):
    """Also where episodes of one batch have different room left: a model of absolute positions would have none there.
    """
    never = type("Never", (), {"reset": lambda self, row: "?",
                               "step": lambda self, text: Step("go"[:1 + ord(text[0]) % 2], 0.0, False)})
    started, asked = playing(task=Plays(never, max_turns=4, turn_tokens=6), max_new_tokens=16), []
    drawn = generation._drawn

    def seen(session, model, prompts, size, how, tape):
        asked.append((max(prompts.lengths), how["max_new_tokens"]))
        return drawn(session, model, prompts, size, how, tape)
    monkeypatch.setattr(generation, "_drawn", seen)
    collect(started)
    width = asked[0][0]
    assert len({most for _, most in asked}) > 1 and all(length + most <= width + 16 for length, most in asked)


def test_an_environment_that_never_ends_is_said_once():
    never = type("Never", (), {"reset": lambda self, row: "?", "step": lambda self, text: Step("go on", 0.0, False)})
    notes = [note for record in records(playing(task=Plays(never))) for note in record.notes if "ended no" in note]
    assert len(notes) == 1
    assert says(notes[0], "parrot", "3", "done=True", "max_turns")


def test_an_observation_longer_than_the_context_is_said_in_words():
    long = type("Long", (), {"reset": lambda self, row: "?", "step": lambda self, text: Step("x" * 900, 0.0, False)})
    started = playing(task=Plays(long, observation_length=1000))
    assert collect(started).batch.completions.ids.shape[1] <= 40, "what does not fit is not kept either"
    found = records(playing(task=Plays(long, observation_length=1000)))
    notes = [note for record in found for note in record.notes if "observation" in note]
    assert [says(note, "environment parrot", "40 tokens", "`observation_length`", "`max_new_tokens`")
            for note in notes] == [True]
    assert found[-1].metrics["completions/truncated_frac"] > 0
    notes = [note for record in records(playing(task=Plays(long, observation_length=5))) for note in record.notes
             if "observation" in note]
    assert [says(note, "environment parrot", "cut", "5 characters", "`observation_length`") for note in notes] == [True]


def test_a_fault_of_the_environment_stops_the_run_in_words():
    bad = type("Bad", (), {"reset": lambda self, row: "?",
                           "step": lambda self, text: Step("go on", float("nan"), False)})
    with pytest.raises(LabError, match=saying("environment parrot", "nan", "reward of turn 1")):
        records(playing(task=Plays(bad)))


def test_rewards_stand_at_the_last_token_of_their_turns():
    started = playing("ppo", kl_placement="off")
    batch = collect(started)
    per_token = rewards_of_tokens(started.knobs, batch.rollout)
    assert ((per_token != 0) <= turns.lasts(batch.rollout.completion_mask)).all() and (per_token != 0).sum() > 4
    for row, episode in enumerate(batch.batch.texts):
        got = turns.per_turn(per_token[row: row + 1], batch.rollout.completion_mask[row: row + 1])[0]
        assert got.tolist() == pytest.approx(episode.rewards, abs=1e-6)
        assert float(batch.rollout.shaped[row]) == pytest.approx(sum(episode.rewards))


def test_a_penalty_of_the_whole_episode_stands_at_its_end():
    started = playing("ppo", kl_placement="off", shaping="length_cost", length_cost=0.5)
    rollout = collect(started).rollout
    per_token, ends = rewards_of_tokens(started.knobs, rollout), turns.extents(rollout.completion_mask)[:, None] - 1
    rest = per_token - rollout.turn_rewards
    assert torch.allclose(rest.gather(1, ends)[:, 0], -0.5 * rollout.completion_mask.sum(1), atol=1e-5)
    assert not rest.scatter(1, ends, 0).any()


@pytest.mark.parametrize("algorithm, knobs", [
    ("reinforce", {}), ("rloo", {"advantage": "turn_return", "ratio": "token"}),
    ("ppo", {"advantage": "turn_gae", "mini_batches": 1})])
def test_gradients_are_those_of_each_turn_by_itself(algorithm, knobs):
    """A slow twin: every turn is a completion of its own, whose prompt is all that came before it."""
    started = playing(algorithm, prompts_per_step=4, **knobs)
    rollout = credit(started.in_force, collect(started).rollout)
    met = Met()
    online.gradients(started, rollout, met, fresh=True)
    got = torch.cat([weight.grad.flatten() for weight in started.policy.parameters()])
    assert (met.norms[~rollout.completion_mask] == 0).all() and (met.norms > 0).any()
    started.policy.zero_grad()
    rows, per_row = len(rollout.ids), []
    for row in range(rows):
        prompt = rollout.prompts.ids[row // rollout.group_size][rollout.prompts.mask[row // rollout.group_size]]
        terms = []
        for turn in range(int(turns.count(rollout.completion_mask)[row])):
            inside = rollout.completion_mask[row] & (turns.numbers(rollout.completion_mask)[row] == turn)
            first = int(inside.nonzero()[0])
            asked = padded_prompts([[*prompt.tolist(), *rollout.ids[row, :first].tolist()]], 0, rollout.ids.device)
            ids = rollout.ids[row: row + 1, inside]
            logprobs = selective_log_softmax(alone(started.policy, asked, ids), ids)
            terms.append((rollout.credited[row: row + 1, inside] * logprobs).flatten())
        per_row.append(torch.cat(terms))
    tokens = sum(len(terms) for terms in per_row)
    loss = {"reinforce": lambda: -sum(terms.sum() for terms in per_row) / rows,
            "rloo": lambda: -sum(terms.mean() for terms in per_row) / rows,
            "ppo": lambda: -sum(terms.sum() for terms in per_row) / tokens}[algorithm]()
    loss.backward()
    twin = torch.cat([weight.grad.flatten() for weight in started.policy.parameters()])
    assert torch.allclose(got, twin, atol=1e-5 * float(twin.abs().max())) and float(twin.norm()) > 1e-3


def enumerated(network, rendering):
    """Every episode of two turns of one token each: completions, and the texts that played them."""
    asked = padded_prompts(rendering.prompts([Problem("a", "")]), 0, torch.device("cpu"))
    vocabulary, forced = len(rendering.tokenizer), iter(())
    rows = list(itertools.product(range(vocabulary), repeat=2))

    def draw(prompts, size, most):
        chosen = next(forced)
        return replace(padded_completions([[token] for token in chosen], [token != 0 for token in chosen], 0,
                                          torch.device("cpu")), logprobs=torch.zeros(len(chosen), 1))
    task, found, texts = Plays(max_turns=2, turn_tokens=1), [], []
    for first, second in rows:
        forced = iter([[first], [second]])
        done, [text] = episodes.played(task, rendering, [Problem("a", "", columns={"first": "a"})], 1, asked, 12, draw)
        if text not in texts:  # one that ended has no second turn
            found.append(done)
            texts.append(text)
    width = max(done.ids.shape[1] for done in found)
    ids, mask = (torch.cat([pad(getattr(done, name), (0, width - done.ids.shape[1])) for done in found])
                 for name in ("ids", "mask"))
    return asked, Completions(ids, mask, torch.zeros(len(ids), dtype=torch.bool)), texts


def test_the_policy_gradient_is_unbiased():
    """Σ over all pairs of episodes of p p' times the estimate is the gradient of the exact mean return, whether an
    episode has one advantage or every turn its own."""
    tokenizer = letter_tokenizer("abnABN-\n")
    network = model("llama", len(tokenizer), dtype=torch.float64)
    rendering = Rendering(tokenizer, (0,))
    asked, done, texts = enumerated(network, rendering)
    logprobs = selective_log_softmax(alone(network, asked, done.ids), done.ids).masked_fill(~done.mask, 0)
    rewards = verifier(Plays(), [Problem("a", "")] * len(texts), texts, done)
    whole = logprobs.sum(1).exp()
    assert whole.sum().item() == pytest.approx(1) and len(texts) > 60
    exact = torch.autograd.grad((whole * rewards.total).sum(), logprobs, retain_graph=True)[0]
    exact = torch.autograd.grad(logprobs, list(network.parameters()), exact, retain_graph=True)
    one, other = (side.flatten() for side in torch.meshgrid(*[torch.arange(len(texts))] * 2, indexing="ij"))
    rows = torch.stack([one, other], 1).flatten()
    weights = (whole[one] * whole[other]).detach().repeat_interleave(2)[:, None] / 2
    per_turn = turn_return(rewards.of_turns[rows], done.mask[rows], 2)
    per_episode = leave_one_out(rewards.total[rows].view(-1, 2)).reshape(-1, 1) * done.mask[rows]
    for advantages in (per_turn, per_episode):
        found = torch.autograd.grad((weights * advantages * logprobs[rows]).sum(), list(network.parameters()),
                                    retain_graph=True)
        for got, expected in zip(found, exact, strict=True):
            assert (got - expected).abs().max() < 1e-7
    assert not torch.allclose(per_turn, per_episode.to(per_turn))


def test_what_is_measured_does_not_depend_on_what_observations_say(monkeypatch):
    """Every token of an observation may be another one to the policy: its log-probs there enter no number."""
    started = playing("grpo", group_size=4)
    rollout = credit(started.in_force, collect(started).rollout)
    before = online.gradients(started, rollout)
    grads = torch.cat([weight.grad.flatten() for weight in started.policy.parameters()])
    started.policy.zero_grad()
    holes = turns.observations(rollout.completion_mask)
    moved = replace(rollout, old_logprobs=rollout.old_logprobs - 3.0 * holes,
                    ref_logprobs=rollout.ref_logprobs + 2.0 * holes, advantages=rollout.credited + 5.0 * holes)
    assert online.gradients(started, moved) == before
    assert torch.equal(grads, torch.cat([weight.grad.flatten() for weight in started.policy.parameters()]))


def test_greedy_and_sampled_episodes_of_the_same_numbers_are_the_same():
    one, other = (generate(started, started.policy, started.task.problems(3, started.rng), 2,
                           Sampling.of(started.knobs)) for started in (playing(), playing()))
    assert one.texts == other.texts and isinstance(one.texts[0], Episode)


@pytest.mark.parametrize("source", ["steps_and_outcome", "correct_and_format", "step_verifier", "order_only"])
def test_a_source_that_reads_one_answer_is_refused(source):
    with pytest.raises(LabError, match=saying("one answer", "Guess a number", "several turns")):
        make(algorithm_key="grpo", task_key="guess", knobs={"reward_source": source})


def test_rows_whose_own_source_reads_one_answer_have_the_environments_rewards():
    assert {make(algorithm_key=row, task_key="guess").knobs["reward_source"] for row in ("grpo_process", "gdpo")} == {
        "verifier"}


def test_an_episode_goes_on_after_given_turns_with_the_answers_that_somebody_gave():
    started = playing()
    problem = Problem("a", "", columns={"first": "a"})
    one = generate(started, started.policy, [problem], 1, Sampling.of(started.knobs),
                   begun=[Begun("b"), Begun("c", "BAD")], turns=1)
    [text] = one.texts
    assert [move.text for move in text.moves[:2]] == ["b", "c"] and len(text.moves) == 3
    ids, own = started.rendering.episode(text)
    assert one.completions.ids[0].tolist()[:len(ids) - 1] == ids[:-1] and text.moves[1].observation == "BAD"
    assert own[:len(own) - 1] == one.completions.mask[0].tolist()[:len(own) - 1]
    assert not one.completions.sampled_logprobs[0, :4].any(), "nobody drew the turns that were given"


def test_the_rewards_of_an_episode_that_somebody_answers_stay_those_of_the_environment():
    plain, answered = (Plays().begin(Problem("a", "", columns={"first": "a"})) for _ in range(2))
    moves = [(plain.step(text), answered.step(text, "ab")) for text in ("b", "c")]
    assert [one.reward for one, _ in moves] == [other.reward for _, other in moves]
    assert [other.observation for _, other in moves] == ["ab", "ab"]
