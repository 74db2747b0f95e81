"""Stock models for the GRPO step: what they are, the floor's arithmetic, and our side on prompts of a file."""

import json
from contextlib import nullcontext

import pytest
import torch

from benchmarks import grpo_step, stock, turns
from labcore.llm.nets.model import load


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "sums.jsonl"
    rows = [{"question": f"How many are {a} and {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}
            for a in range(9) for b in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


@pytest.fixture(scope="module", params=stock.MODELS)
def folder(request, prompts, tmp_path_factory):
    """A folder of each stock class, so small that it is there at once."""
    small = {"vocab_size": 1024, "hidden_size": 56, "intermediate_size": 64, "num_hidden_layers": 1}
    folder = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(stock.MODELS, request.param, {**stock.MODELS[request.param], **small,
                                                      "num_attention_heads": 14, "num_key_value_heads": 2})
        stock.save_weights(request.param, prompts, folder)
    return folder


@pytest.mark.parametrize("model, millions", [("llama-1m", 1), ("llama-60m", 60), ("llama-342m", 342),
                                             ("qwen2-494m", 494)])
def test_models_have_the_parameters_of_their_names(model, millions, prompts):
    with torch.device("meta"):
        network = stock._network(model, stock.tokenizer_of(300, prompts))
    assert sum(weight.numel() for weight in network.parameters()) / 1e6 == pytest.approx(millions, rel=0.07)


def test_every_id_has_a_text_and_prompts_are_read_back(folder):
    model, tokenizer = load(folder)
    assert len(tokenizer) == model.config.vocab_size == 1024 == max(tokenizer.get_vocab().values()) + 1
    ids = tokenizer("How many are 3 and 8?")["input_ids"]
    assert tokenizer.decode(ids) == "How many are 3 and 8?" and len(ids) < 10  # words, not bytes
    assert all(tokenizer.convert_ids_to_tokens(list(range(1024))))
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1) == (
        model.config.pad_token_id, model.config.eos_token_id)


def test_the_floor_reads_weights_and_cache_once_a_token(prompts, monkeypatch):
    monkeypatch.setattr(stock, "bandwidth", lambda device: 1e9)
    floor = stock.floor("llama-1m", prompts, "cpu")
    assert floor.cached == 2 * 4 * 128 and floor.width < 10  # keys and values of 4 layers
    # 100 numbers of weights and 3 rows of 7 + 10/2 tokens: 136 numbers.
    floor = stock.Floor(100, 1, 7, bandwidth=1e3)
    assert floor.token_seconds(3, 10, "fp32") == pytest.approx(0.544)
    assert floor.token_seconds(3, 10, "bf16") == pytest.approx(0.272)


def test_ours_learns_from_the_prompts_and_counts_its_tokens(folder, prompts):
    class Once:
        def ready(self) -> None:
            pass

        def step_done(self, tokens: int) -> None:
            self.tokens = tokens
            raise SystemExit

    turn = Once()
    with pytest.raises(SystemExit):
        grpo_step.lab(folder, "fp32", 1, turn, grpo_step.Job(2, 3, 4, prompts))
    assert 6 <= turn.tokens <= 24


def test_a_table_for_each_model_with_its_floor(prompts, monkeypatch, capsys):
    asked = []

    def measure(save, sides, *rest):
        asked.append((save.args, sides["lab"].keywords["job"]))
        return {"trl-fp32": [turns.Times([0.4], [0.4], 9.0, 80)], "lab-fp32": [turns.Times([0.1], [0.1], 8.0, 80)]}
    monkeypatch.setattr(turns, "measure", measure)
    monkeypatch.setattr(stock, "bandwidth", lambda device: 1e9)
    monkeypatch.setattr(grpo_step, "check_installed", lambda: None)
    monkeypatch.setattr(grpo_step.multiprocessing, "get_context", lambda kind: Here())
    assert grpo_step.main(["--models", "llama-1m", "--prompts", prompts, "--batch", "2", "4", "10"]) == 0
    assert asked == [(("llama-1m", prompts), grpo_step.Job(2, 4, 10, prompts))]
    printed = capsys.readouterr().out
    assert "2 prompts × 4 completions of 10 tokens" in printed and "4.00" in printed
    assert "800" in printed and "Copies on" in printed and "estimate" in printed


class Here:
    """A pool of processes that works in this one."""

    def Pool(self, size: int):
        return nullcontext(self)

    def apply(self, function, arguments):
        return function(*arguments)


def test_stock_models_need_prompts(capsys, monkeypatch):
    monkeypatch.setattr(grpo_step, "check_installed", lambda: None)
    assert grpo_step.main(["--models", "llama-1m"]) == 1
    assert "--prompts FILE" in capsys.readouterr().err
