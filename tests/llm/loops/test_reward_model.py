"""The reward model's loop: the score is at the last token, held-out pairs are never learnt from."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from labcore.errors import LabError
from labcore.llm.loops import reward_model
from labcore.llm.loops.preference import encode
from labcore.llm.nets.scorer import last_values, scores
from labcore.llm.pairs import sample_once
from labcore.maths.reward_model import bradley_terry
from labcore.runs.files import uploads
from labcore.tasks import labels
from labcore.tasks.task import Pair
from tests.llm.tools import records, session, shake, spec, weights
from tests.words import saying

RAGGED = [Pair("ab=", "ab", "abcabc"), Pair("cbad=", "", "d", rejected_truncated=True), Pair("=", "abc", "c")]


def started(**given):
    made = session("reward_model", **given)
    shake(made.models["reward_model"])
    return made


def by_hand(made, pair):
    """The value after the last token of each side, one row at a time and with no padding."""
    found = []
    for text, cut in ((pair.chosen, pair.chosen_truncated), (pair.rejected, pair.rejected_truncated)):
        ids = made.tokenizer(pair.prompt + text)["input_ids"] + ([] if cut else [made.tokenizer.eos_token_id])
        found.append(made.models["reward_model"](input_ids=torch.tensor([ids])).logits[0, -1, 0])
    return torch.stack(found)


def test_the_score_is_that_of_the_last_token_whatever_the_padding():
    made = started()
    prompts, completions = encode(made, RAGGED)
    expected = torch.cat([by_hand(made, pair) for pair in RAGGED])
    got = scores(made.models["reward_model"], prompts, completions, "fp32")
    assert torch.allclose(got, expected, atol=1e-5) and len(set(got.tolist())) == 6
    completions.ids[~completions.mask] = 7  # what stands under the padding is not read
    assert torch.allclose(scores(made.models["reward_model"], prompts, completions, "fp32"), expected, atol=1e-5)
    completions.mask[:, 0] &= ~completions.mask[:, 1]  # an observation does not count, but the model reads it
    assert torch.allclose(scores(made.models["reward_model"], prompts, completions, "fp32"), expected, atol=1e-5)


def test_an_update_has_the_loss_and_the_gradient_of_its_pairs():
    made = started(margin=0.3, centering=0.2)
    model = made.models["reward_model"]
    sides = torch.stack([by_hand(made, pair) for pair in RAGGED])
    loss = bradley_terry(sides[:, 0], sides[:, 1], 0.3, 0.2).mean()
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    prompts, completions = encode(made, RAGGED)
    given = last_values(model, prompts, completions.ids, completions.mask, "fp32").view(-1, 2)
    got = torch.autograd.grad(bradley_terry(given[:, 0], given[:, 1], 0.3, 0.2).mean(), list(model.parameters()))
    assert torch.allclose(torch.cat([part.flatten() for part in got]), expected, atol=1e-5)
    metrics = reward_model.update(made, RAGGED)
    margins = (sides[:, 0] - sides[:, 1]).detach()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-4)
    assert metrics["margin"] == pytest.approx(float(margins.mean()), rel=1e-4)
    assert metrics["accuracy"] == pytest.approx(float((margins > 0).float().mean()))
    assert made.tokens == int(completions.mask.sum())


def test_a_pair_has_the_margin_of_its_own_where_it_has_one():
    """TRL's lines: −log σ(r_w − r_l − margin), one margin for each pair."""
    made = started(margin=0.3, centering=0.0)
    own = [replace(RAGGED[0], margin=1.5), RAGGED[1], replace(RAGGED[2], margin=0.0)]
    sides = torch.stack([by_hand(made, pair) for pair in RAGGED]).detach()
    expected = -torch.nn.functional.logsigmoid(sides[:, 0] - sides[:, 1] - torch.tensor([1.5, 0.3, 0.0])).mean()
    assert reward_model.gradients(made, own)[0] == pytest.approx(float(expected), rel=1e-5)
    assert reward_model.gradients(made, RAGGED)[0] != pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("margin, said", [(0.5, None), ("0.5", None), (True, "is true|is True"), ("much", "'much'"),
                                          ("nan", "'nan'")])
def test_margins_are_read_from_a_file_of_pairs(tmp_path, margin, said):
    rows = [{"prompt": "ab=", "chosen": "ab", "rejected": "ba", "margin": margin},
            {"prompt": "cb=", "chosen": "bc", "rejected": "cb"}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if said:
        with pytest.raises(LabError, match=f"'margin' in line 1 .*({said})"):
            session("reward_model", letters=False, task="preferences", data=str(tmp_path / "pairs.jsonl"))
    else:
        made = session("reward_model", letters=False, task="preferences", data=str(tmp_path / "pairs.jsonl"))
        assert [pair.margin for pair in made.task.rows] == [0.5, None]


def test_a_tie_is_not_right():
    """The same completion on both sides has the same score twice."""
    made, ties = started(), [Pair("ab=", "ab", "ab"), Pair("=", "c", "c"), Pair("abc=", "", "")]
    right = float(by_hand(made, RAGGED[0]).detach().diff()) < 0
    assert reward_model.evaluate(made, [*ties, RAGGED[0]])[0]["eval_accuracy"] == right / 4
    metrics = reward_model.update(made, ties)
    assert (metrics["accuracy"], metrics["margin"]) == (0, 0)


def test_it_starts_undecided_and_leaves_the_policy_alone():
    made = session("reward_model", task="reviews", letters=False, steps=12, learning_rate=3e-3, pairs_per_step=16,
                   eval_every=12)
    before = weights(made.policy)
    rows = records(made)
    assert rows[0].metrics["loss"] == pytest.approx(np.log(2), abs=1e-6) and rows[0].metrics["margin"] == 0
    assert rows[-1].metrics["loss"] < rows[0].metrics["loss"]
    assert torch.equal(weights(made.policy), before)
    assert "gold_correlation" in rows[-1].metrics and -1 <= rows[-1].metrics["gold_correlation"] <= 1


def test_what_is_measured_can_be_looked_at():
    made = session("reward_model", task="reviews", letters=False, steps=2, eval_every=5, eval_pairs=24)
    first, second = records(made, pictures=True)
    assert "eval_accuracy" in first.metrics and "eval_accuracy" not in second.metrics
    assert first.samples["step"] == 1 and sum(row["pairs"] for row in first.samples["calibration"]) == 24
    assert all(0.5 <= row["predicted"] <= 1 and 0 <= row["right"] <= 1 for row in first.samples["calibration"])
    shown = first.samples["scored"]
    assert len(shown) == 16 and {"text", "score", "gold"} == set(shown[0]["chosen"])
    held_out = first.samples["held_out"]
    assert len(held_out["scores"]) == len(held_out["gold"]) == 24
    assert held_out["gold"][0][0] == pytest.approx(shown[0]["chosen"]["gold"], abs=1e-4)
    assert held_out["scores"][3][1] == pytest.approx(shown[3]["rejected"]["score"], abs=1e-4)
    looked, line = second.look()
    assert looked["step"] == 2 and line is None
    json.dumps(first.samples)


def test_the_numbers_of_held_out_pairs_worked_by_hand():
    """The calibration is that of the margins: ten bins of σ(|m|) from ½ to 1, and how often the sign is right."""
    made, bins = started(), {}
    margins = [-float(by_hand(made, pair).detach().diff()) for pair in RAGGED]
    for margin in margins:
        predicted = 1 / (1 + np.exp(-abs(margin)))
        bins.setdefault(int((predicted - 0.5) * 20), []).append((predicted, margin > 0))
    error = sum(abs(sum(p for p, _ in each) - sum(right for _, right in each)) for each in bins.values()) / 3
    metrics, shown = reward_model.evaluate(made, RAGGED)
    assert metrics["calibration_error"] == pytest.approx(error, abs=1e-5)
    assert metrics["eval_margin"] == pytest.approx(sum(margins) / 3, abs=1e-5)
    assert metrics["eval_accuracy"] == pytest.approx(sum(margin > 0 for margin in margins) / 3)
    assert [row["pairs"] for row in shown["calibration"]] == [len(bins[place]) for place in sorted(bins)]


def preferences(tmp_path, rows):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(dict(zip(("prompt", "chosen", "rejected"), row, strict=True))) + "\n"
                            for row in rows))
    return str(path)


@pytest.mark.parametrize("share", [0.0, 0.15])  # without a share of the file its pairs are split in the loop
def test_held_out_prompts_of_a_file_are_never_learnt_from(tmp_path, share):
    data = preferences(tmp_path, [(f"p{n % 20}", f"good {n}", "bad") for n in range(60)])
    made = session("reward_model", task="preferences", letters=False, data=data, eval_pairs=9, held_out=share)
    known, held = reward_model.split(made)
    assert len(known) + len(held) == 60 and 8 <= len(held) <= 12
    assert not {pair.prompt for pair in known} & {pair.prompt for pair in held}
    assert reward_model.split(made) == (known, held), "a resumed run has the same"
    record = records(made, pictures=True)[0]
    assert "eval_accuracy" in record.metrics and "gold_correlation" not in record.metrics
    assert "gold" not in record.samples["scored"][0]["chosen"]


def test_pairs_of_one_prompt_cannot_be_held_out(tmp_path):
    data = preferences(tmp_path, [("p", f"good {n}", "bad") for n in range(9)])
    with pytest.raises(LabError, match="one prompt, so none can be held out"):
        records(session("reward_model", task="preferences", letters=False, data=data))


def test_pairs_of_a_verifier_are_split_as_well():
    made = session("reward_model", steps=1)
    records(made)
    known, held = reward_model.split(made)
    assert known and held and {pair.prompt for pair in known}.isdisjoint(pair.prompt for pair in held)


@pytest.mark.parametrize("pairs", ["reference_once", "policy_each_step"])
def test_pairs_of_held_out_prompts_are_what_it_is_measured_on(tmp_path, pairs):
    """Of a file of prompts pairs are sampled: those of its held-out prompts are measured, and all others learnt."""
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}=", "answer": "1"}) + "\n" for n in range(60)))
    given = {"task": "prompts", "letters": False, "data": str(data), "verifier": "contains", "pattern": "1",
             "pairs": pairs, "held_out": 0.5, "eval_pairs": 8, "group_size": 16, "pair_prompts": 30, "steps": 1}
    made = session("reward_model", **given)
    made.pairs = sample_once(made) if pairs == "reference_once" else []
    known, held = reward_model.split(made)
    assert 1 <= len(held) <= 8 and {pair.prompt for pair in held} <= {row.prompt for row in made.task.held}
    assert known is None or len(known) == len(made.pairs), "none is lost to a second split"
    assert reward_model.split(made)[1] == held, "a resumed run has the same"
    assert "eval_accuracy" in records(made)[0].metrics
    never = session("reward_model", **given | {"pattern": "11111111"})
    never.pairs = made.pairs
    assert reward_model.split(never)[1] and "None of 8 held-out prompts got both" in never.standing[0]


def test_single_completions_are_no_pairs(tmp_path):
    data = tmp_path / "labels.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"p{n}", "completion": "a", "label": n % 2 == 0}) + "\n"
                            for n in range(9)))
    with pytest.raises(LabError, match=saying("learns from pairs", "single completions")):
        reward_model.split(session("reward_model", task="preferences", letters=False, data=data))


def lines(*rows: tuple[str, str, str]) -> str:
    """The name of an upload with these pairs."""
    return labels.keep([dict(zip(("prompt", "chosen", "rejected"), row, strict=True)) for row in rows])


LABELLED = {"task": "reviews", "letters": False, "pairs_per_step": 8, "eval_pairs": 8}


def test_a_share_of_each_batch_are_labelled_pairs():
    own = lines(*((f"the {subject} was ", "so so", "very very") for subject in ("plot", "cast", "film")))
    made = session("reward_model", **LABELLED, labelled_pairs=own, labelled_share=0.25)
    batch = reward_model._batch(made, None)
    assert len(batch) == 8 and [pair.chosen == "so so" for pair in batch] == [False] * 6 + [True] * 2
    made.knobs["labelled_share"] = 1.0
    assert {pair.chosen for pair in reward_model._batch(made, None)} == {"so so"}
    plain = session("reward_model", **LABELLED, labelled_share=0.25)
    assert reward_model._batch(plain, None) == plain.task.pairs(8, np.random.default_rng(0)), "none: as ever"


def test_it_learns_from_labelled_pairs_what_the_others_do_not_say():
    own = lines(("the plot was ", "so so so", "good and fun"))  # no grammar and no gold score would say so
    made = session("reward_model", **LABELLED, steps=30, learning_rate=3e-3, labelled_pairs=own, eval_every=30)
    records(made)
    prompts, completions = encode(made, made.labelled)
    chosen, rejected = scores(made.models["reward_model"], prompts, completions, "fp32").tolist()
    assert chosen > rejected + 1


def test_checkpoints_hold_the_labelled_pairs_and_a_fork_may_take_others(tmp_path):
    own, other = lines(("the plot was ", "good", "dull")), lines(("the cast was ", "warm", "cold"))
    whole = records(session("reward_model", **LABELLED, steps=3, labelled_pairs=own))
    begun = session("reward_model", **LABELLED, steps=3, labelled_pairs=own)
    next(record for record in begun.run() if record is not None)
    begun.save(tmp_path / "checkpoint")
    shutil.rmtree(uploads.root() / own)
    resumed = session("reward_model", **LABELLED, steps=3, labelled_pairs=own, resume=tmp_path / "checkpoint")
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in whole[1:]]
    forked = resumed.fork(spec("reward_model", "reviews", pairs_per_step=8, eval_pairs=8, labelled_pairs=other))
    assert [pair.chosen for pair in forked.labelled] == ["warm"]


def test_labelled_pairs_that_are_not_there_are_said_before_the_first_step():
    with pytest.raises(LabError, match=r"cannot be found, .*: give the file with --labels"):
        spec("reward_model", "reviews", labelled_pairs="mine.jsonl")
    with pytest.raises(LabError, match="There are no labelled pairs '0123456789abcdef' here"):
        session("reward_model", **LABELLED, labelled_pairs="0123456789abcdef")
    with pytest.raises(LabError, match="line 1"):
        session("reward_model", **LABELLED, labelled_pairs=lines(("the plot was " * 40, "good", "dull")))
