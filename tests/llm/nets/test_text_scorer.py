"""A published reward model: its own tokenizer and template, the score at the last token, and folders that are none."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, LlamaConfig

from labcore.errors import LabError
from labcore.llm.measured_cost import networks_of
from labcore.llm.nets import text_scorer
from labcore.llm.nets.text_scorer import load_text_scorer
from labcore.llm.nets.tokenizer import character_tokenizer, letter_tokenizer
from labcore.tasks.task import Problem, Turn
from tests.llm.tools import SIZE, quietly, records, session
from tests.words import saying

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
PROBLEMS, TEXTS = [Problem("a+b=", "c")] * 3, ["", "defg", "de"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Makes folders of reward models, each once."""
    root = tmp_path_factory.mktemp("models")

    def folder(template=None, labels=1, tokenizer=None, name=""):
        place = root / f"{template is not None}-{labels}-{name}"
        if not place.exists():
            tokens = tokenizer or character_tokenizer("é")
            tokens.chat_template = template
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                config = LlamaConfig(**{**SIZE, "vocab_size": len(tokens) + 4, "num_labels": labels,
                                        "max_position_embeddings": 64, "eos_token_id": tokens.eos_token_id,
                                        "pad_token_id": tokens.pad_token_id})
                AutoModelForSequenceClassification.from_config(config).save_pretrained(place)
            tokens.save_pretrained(place)
        return place

    return folder


def alone(folder, text):
    """The score of a text by transformers itself, one row, no padding."""
    scorer = load_text_scorer(str(folder))
    ids = torch.tensor([scorer.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        return float(scorer.model(input_ids=ids).logits[0, 0])


def test_a_text_is_scored_as_it_stands(kept):
    folder = kept()
    found = load_text_scorer(str(folder)).scores(PROBLEMS, TEXTS, False, "fp32")
    assert found.tolist() == pytest.approx([alone(folder, "a+b=" + text) for text in TEXTS], abs=1e-6)
    assert len(set(found.tolist())) == 3


def test_a_conversation_is_written_by_its_own_template(kept):
    folder = kept(TEMPLATE)
    scorer, turns = load_text_scorer(str(folder)), (Turn("system", "s"), Turn("user", "a+b="))
    talk = [Problem("a+b=", "c", turns=turns)] * 3
    expected = [alone(folder, f"<system>s<user>a+b=<assistant>{text}") for text in TEXTS]
    assert scorer.scores(talk, TEXTS, False, "fp32").tolist() == pytest.approx(expected, abs=1e-6)
    expected = [alone(folder, f"<user>a+b=<assistant>{text}") for text in TEXTS]
    assert scorer.scores(PROBLEMS, TEXTS, True, "fp32").tolist() == pytest.approx(expected, abs=1e-6)
    assert scorer.scores(PROBLEMS, TEXTS, False, "fp32").tolist() == pytest.approx(
        [alone(folder, "a+b=" + text) for text in TEXTS], abs=1e-6)


def test_how_rows_are_cut_into_micro_batches_changes_nothing(kept, monkeypatch):
    scorer = load_text_scorer(str(kept()))
    whole = scorer.scores(PROBLEMS, TEXTS, False, "fp32")
    monkeypatch.setattr(text_scorer, "TOKENS", 9)
    assert torch.allclose(scorer.scores(PROBLEMS, TEXTS, False, "fp32"), whole, atol=1e-6)
    assert text_scorer.parts([4, 8, 5, 3], alone=False) == [[3, 0], [2], [1]]


def test_a_tokenizer_without_padding_is_read_row_by_row(kept):
    """Its end pads, and the score is that at the last token, also where this is an end."""
    tokens = letter_tokenizer("abc=+defg<userasitn>")
    folder = kept(tokenizer=tokens, name="ends")
    config = json.loads((folder / "config.json").read_text())
    scorer = load_text_scorer(str(folder))
    rows = scorer.model.get_input_embeddings().weight.shape[0]
    assert config["pad_token_id"] == tokens.eos_token_id and rows == len(tokens) + 4
    found = scorer.scores(PROBLEMS, TEXTS, False, "fp32")
    assert found.tolist() == pytest.approx([alone(folder, "a+b=" + text) for text in TEXTS], abs=1e-6)


def test_what_is_too_long_for_it_is_said_in_words(kept):
    with pytest.raises(LabError, match=r"have 104 tokens for the reward model .*, which reads 64: lower `max"):
        load_text_scorer(str(kept())).scores(PROBLEMS[:1], ["d" * 100], False, "fp32")


def test_conversations_need_a_template_and_one_that_takes_them(kept):
    talk = [Problem("a", "b", turns=(Turn("system", "s"), Turn("user", "a")))]
    with pytest.raises(LabError, match=saying("no chat template", "conversations")):
        load_text_scorer(str(kept())).scores(talk, ["x"], True, "fp32")
    fussy = kept("{% if messages[0].role == 'system' %}{{ raise_exception('No system!') }}{% endif %}", name="fussy")
    with pytest.raises(LabError, match=r"refuses a prompt \(no system!\): check the order"):
        load_text_scorer(str(fussy)).scores(talk, ["x"], True, "fp32")


def broken(kept, tmp_path, change):
    folder = tmp_path / "model"
    shutil.copytree(kept(), folder)
    change(folder)
    return folder


def configured(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return change


def headless(folder):
    weights = load_file(folder / "model.safetensors")
    save_file({key: value for key, value in weights.items() if "score" not in key}, folder / "model.safetensors")


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize("change, match", [
    (configured(architectures=["LlamaForCausalLM"]), r"\(LlamaForCausalLM\) is no reward model: choose a folder of"),
    (configured(architectures=["Mine"], model_type="mine", auto_map={"AutoModel": "code.Mine"}), "needs code of"),
    (configured(id2label={"0": "a", "1": "b", "2": "c"}, label2id={}), "gives 3 scores, but a reward model gives one"),
    (pickled, "only pickle weights"), (headless, "lack 1 of the reward model's tensors, such as score.weight"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "cannot be loaded"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
    (lambda folder: (folder / "config.json").unlink(), "has no config.json")])
def test_a_folder_that_is_none_is_said_in_words(kept, tmp_path, change, match):
    with pytest.raises(LabError, match=match):
        load_text_scorer(str(broken(kept, tmp_path, change)))


def test_a_run_is_rewarded_by_it_and_goes_on_from_a_checkpoint(kept, tmp_path):
    folder = kept()
    knobs = {"reward_source": "reward_model", "reward_model": str(folder)}
    started = session("grpo", steps=2, **knobs)
    assert started.knobs["reward_model"] == str(folder)
    [first, second] = records(started, pictures=True)
    assert first.metrics["reward"] != first.metrics["reward/gold"]
    scorer = load_text_scorer(str(folder))
    for group in first.samples["groups"]:
        texts = [each["text"] for each in group["completions"]]
        expected = scorer.scores([Problem(group["prompt"], "")] * len(texts), texts, False, "fp32")
        assert [each["reward"] for each in group["completions"]] == pytest.approx(expected.tolist(), abs=1e-6)
    again = session("grpo", steps=2, **knobs)
    with quietly():
        assert next(record for record in again.run() if record).metrics == first.metrics
    again.save(tmp_path)
    assert not (tmp_path / "scorer").exists()  # the folder is named, and no copy made of it
    resumed = session("grpo", steps=2, resume=tmp_path, **knobs)
    assert records(resumed)[0].metrics == second.metrics


def test_it_is_one_of_an_ensemble_or_of_a_sum_and_its_memory_is_counted(kept):
    folder = kept()
    knobs = {"reward_model": f"{folder},{kept(TEMPLATE)}", "reward_source": "worst_case_ensemble"}
    assert "reward/spread" in records(session("grpo", steps=1, **knobs))[0].metrics
    summed = {"reward_source": "own_function", "reward_function": "verifier + reward_model", "reward_weights": "1 2",
              "reward_model": str(folder)}
    started = session("grpo", steps=1, **summed)
    metrics = records(started)[0].metrics
    assert metrics["reward"] == pytest.approx(metrics["reward/verifier"] + 2 * metrics["reward/reward_model"])
    held = networks_of(started.spec)["scorer"]
    assert sum(weight.numel() for weight in held.parameters()) == sum(
        weight.numel() for weight in load_text_scorer(str(folder)).parameters())
