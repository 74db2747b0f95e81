"""Published process reward models: both layouts beside transformers itself, and folders that score no steps."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, LlamaConfig

from labcore.errors import LabError
from labcore.llm.measured_cost import networks_of
from labcore.llm.nets import text_scorer
from labcore.llm.nets.text_step_scorer import load_step_scorer
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.probes.reward_model_scores import by_reward_model
from labcore.llm.process_rewards import model_scores
from labcore.llm.steps import given_steps
from labcore.tasks.stored_completions import Stored
from labcore.tasks.task import Problem, Turn
from tests.llm.tools import SIZE, quietly, records, session

KNOBS = {"step_separator": "\\n", "step_tag": "#", "label_tokens": "+-"}
PROBLEMS, ANSWERS = [Problem("2+3?", "5")] * 2, [["2+2=4\n", "so 5"], ["so 5\n"]]
GOLDEN = Path(__file__).parents[2] / "golden" / "trl_prm.json"
HEADS = {"classifier": AutoModelForTokenClassification, "tagged": AutoModelForCausalLM}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Makes folders of process reward models with random weights, each once."""
    root = tmp_path_factory.mktemp("models")

    def folder(kind, labels=2, **changes):
        place = root / f"{kind}-{labels}-{'-'.join(changes)}"
        if not place.exists():
            tokens = character_tokenizer("é#?")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                config = LlamaConfig(**{**SIZE, "vocab_size": len(tokens), "num_labels": labels, **changes,
                                        "max_position_embeddings": 64, "eos_token_id": tokens.eos_token_id})
                HEADS[kind].from_config(config).save_pretrained(place)
            tokens.save_pretrained(place)
        return place

    return folder


def outputs(scorer, text):
    """The logits after each character of a text by transformers itself, one row, no padding. (T, V)"""
    ids = torch.tensor([scorer.tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        return scorer.model(input_ids=ids).logits[0].double()


def test_a_token_classifier_scores_the_end_of_each_separator(kept):
    scorer = load_step_scorer(str(kept("classifier")), KNOBS)
    found = scorer.scores(PROBLEMS, ANSWERS, "fp32")
    text = "2+3?2+2=4\nso 5\n"
    expected = outputs(scorer, text).softmax(-1)[[place for place, letter in enumerate(text) if letter == "\n"], 1]
    assert found[0].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert found[1, 0].item() == pytest.approx(outputs(scorer, "2+3?so 5\n").softmax(-1)[-1, 1].item(), abs=1e-6)
    assert found[1, 1].isnan() and found[0].unique().numel() == 2


def test_its_rows_are_those_of_trl_s_trainer(kept):
    """As TRL's own trainer encodes the same rows: ids, and labels at the places that are scored."""
    golden = json.loads(GOLDEN.read_text())
    for case in golden["cases"]:
        if case["last_step_only"]:
            continue
        scorer = load_step_scorer(str(kept("classifier")), KNOBS | {"step_separator": case["separator"]})
        scorer.tokenizer = character_tokenizer()
        for row, expected in zip(golden["rows"], case["rows"], strict=True):
            ids, places = scorer._row(Problem(row["prompt"], ""), row["completions"])
            assert ids == expected["input_ids"]
            assert places == [place for place, label in enumerate(expected["labels"]) if label != -100]


def test_a_language_model_scores_its_tag_by_two_tokens(kept):
    scorer = load_step_scorer(str(kept("tagged")), KNOBS)
    found = scorer.scores(PROBLEMS, ANSWERS, "fp32")
    text = "2+3? 2+2=4 #\nso 5 #"
    good, bad = scorer.tokenizer("+-", add_special_tokens=False)["input_ids"]
    for place, value in zip([at for at, letter in enumerate(text) if letter == "#"], found[0].tolist(), strict=True):
        logits = outputs(scorer, text)[place]
        assert value == pytest.approx(1 / (1 + math.exp(logits[bad] - logits[good])), abs=1e-6)
    by_ids = load_step_scorer(str(kept("tagged")), KNOBS | {"label_tokens": f"{good} {bad}"})
    assert torch.equal(by_ids.scores(PROBLEMS, ANSWERS, "fp32").nan_to_num(), found.nan_to_num())


def test_a_tag_that_the_policy_writes_is_left_out(kept):
    scorer = load_step_scorer(str(kept("tagged")), KNOBS)
    written = scorer.scores(PROBLEMS[:1], [["2+2#=4##\n", "so 5"]], "fp32")
    assert torch.equal(written, scorer.scores(PROBLEMS[:1], ANSWERS[:1], "fp32"))


def test_how_rows_are_cut_into_micro_batches_changes_nothing(kept, monkeypatch):
    for kind in HEADS:
        scorer = load_step_scorer(str(kept(kind)), KNOBS)
        whole = scorer.scores(PROBLEMS, ANSWERS, "fp32")
        with monkeypatch.context() as patched:
            patched.setattr(text_scorer, "TOKENS", 9)
            torch.testing.assert_close(scorer.scores(PROBLEMS, ANSWERS, "fp32"), whole, rtol=1e-5, atol=1e-6,
                                       equal_nan=True)


@pytest.mark.parametrize("kind, knobs, words", [
    ("classifier", {"step_separator": ""}, "`step_separator` is empty, so each token is a step"),
    ("classifier", {"step_separator": "ü"}, "does not know 'ü'"), ("tagged", {"step_tag": ""}, "set `step_tag`"),
    ("tagged", {"step_tag": "ü"}, "does not know 'ü'"), ("tagged", {"label_tokens": "abc"}, "are not two tokens"),
    ("tagged", {"label_tokens": "++"}, "are not two tokens"), ("tagged", {"label_tokens": "10 99999"}, "two tokens"),
    ("tagged", {"label_tokens": "²² ³³"}, "two tokens")])
def test_another_split_of_steps_or_vocabulary_is_said(kept, kind, knobs, words):
    with pytest.raises(LabError, match=words):
        load_step_scorer(str(kept(kind)), KNOBS | knobs)


def configured(folder, tmp_path, **changes):
    target = tmp_path / "model"
    target.mkdir()
    for path in folder.iterdir():
        target.joinpath(path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


@pytest.mark.parametrize("changes, words", [
    ({"architectures": ["Qwen2ForProcessRewardModel"], "auto_map": {"AutoModel": "modeling.Mine"}},
     r"\(Qwen2ForProcessRewardModel\) needs code of its own, which the lab does not run"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "scores no steps: choose a folder of AutoModelForToken"),
    ({"architectures": ["LlamaForTokenClassification"]}, "lack 1 of the reward model's tensors|lack 2 of the reward")])
def test_a_model_of_another_kind_is_refused(kept, tmp_path, changes, words):
    with pytest.raises(LabError, match=words):
        load_step_scorer(configured(kept("tagged"), tmp_path, **changes), KNOBS)


def test_a_classifier_of_three_labels_is_refused(kept):
    with pytest.raises(LabError, match="has 3 labels, but a model that scores steps has two"):
        load_step_scorer(str(kept("classifier", labels=3)), KNOBS)


def test_too_long_an_answer_and_a_conversation_are_said(kept):
    scorer = load_step_scorer(str(kept("classifier")), KNOBS)
    with pytest.raises(LabError, match="which reads at most 64: lower `max_new_tokens`"):
        scorer.scores(PROBLEMS[:1], [["d" * 100]], "fp32")
    talk = Problem("a", "b", turns=(Turn("system", "s"), Turn("user", "a")))
    with pytest.raises(LabError, match="has no chat template, and the prompts are conversations"):
        scorer.scores([talk], [["d"]], "fp32")


@pytest.mark.parametrize("kind", HEADS)
def test_a_run_is_rewarded_by_it(kept, kind):
    """Scores of the run's completions are the model's own, and are counted before the run."""
    given = {"reward_source": "process_reward", "reward_model": str(kept(kind)), "step_separator": "a",
             "step_tag": "#" if kind == "tagged" else "", "label_tokens": "+-"}
    with quietly():
        started = session("grpo_process", steps=1, **given)
        assert records(started)[0].metrics["reward/step_score"] > 0
    answers = [given_steps(started.tokenizer, texts, "a") for texts in (["bc", "d"], ["c"])]
    found = model_scores(started, [Problem("ab=", ""), Problem("c", "")], answers)
    direct = load_step_scorer(str(kept(kind)), given).scores(
        [Problem("ab=", ""), Problem("c", "")], [each.texts for each in answers], "fp32")
    torch.testing.assert_close(found, direct, equal_nan=True)
    forked = started.fork(replace(started.spec, knobs={**started.spec.knobs, "step_separator": "b"}))
    assert next(iter(forked.models["scorer"])).separator == "b", "a fork with another split of steps reads others"
    stored = [Stored(1, 0, Problem("ab=", ""), "bcad", 0.0, False), Stored(1, 1, Problem("c", ""), "c", 0.0, False)]
    lowest = direct.nan_to_num(torch.inf).amin(1).tolist()
    assert by_reward_model(str(kept(kind)), given)(stored) == pytest.approx(lowest, abs=1e-6), "`judge` reads it alike"
    counted = sum(weight.numel() for weight in networks_of(started.spec)["scorer"].parameters())
    assert counted == sum(weight.numel() for weight in started.models["scorer"].parameters())
