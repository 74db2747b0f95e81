"""The softmax table: a distribution of its own for every prefix, as a Hugging Face folder without code."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from labcore.llm.batch import Prompts
from labcore.llm.exact.problem import completions, logprobs
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.nets.model import load, save
from labcore.llm.nets.table import SoftmaxTable, build_table
from labcore.llm.nets.tokenizer import letter_tokenizer
from labcore.llm.sampler import sample

END = 0


@pytest.fixture
def table():
    return build_table(3, 4, 0, END)


@torch.no_grad()
def test_every_prefix_has_a_row_of_its_own(table):
    prefixes = [row for size in (1, 2, 3) for row in torch.cartesian_prod(*[torch.arange(3)] * size).view(-1, size)]
    table.model.entries.weight.data = torch.arange(39.0).repeat_interleave(3).view(39, 3)
    found = [float(table(row[None]).logits[0, -1, 0]) for row in prefixes]
    assert found == [10.0 * place for place in range(39)] and table.config.rows == 39
    padded = torch.tensor([[7, 7, 2, 1]])  # what is padding is not read
    assert float(table(padded, torch.tensor([[0, 0, 1, 1]])).logits[0, -1, 0]) == float(
        table(padded[:, 2:]).logits[0, -1, 0])


def test_it_is_sampled_as_often_as_its_probabilities_say():
    table = build_table(3, 4, 1, END)
    prompts, space = Prompts(torch.tensor([[1]]), torch.tensor([[True]])), completions(range(3), 3, END)
    drawn = sample(table, prompts, 4000, max_new_tokens=3, eos=END, generator=torch.Generator().manual_seed(0))
    rows = {tuple(ids[:size]): place for place, (ids, size) in enumerate(
        zip(space.completions.ids.tolist(), space.lengths.tolist(), strict=True))}
    counts = torch.zeros(len(space), dtype=torch.float64)
    for ids, size in zip(drawn.ids.tolist(), drawn.lengths.tolist(), strict=True):
        counts[rows[tuple(ids[:size])]] += 1
    exact = logprobs(table, prompts, space)[0].exp().detach()
    assert ((counts / 4000 - exact).abs() < 4 * (exact * (1 - exact) / 4000).sqrt()).all()


def test_its_folder_holds_weights_and_no_code(tmp_path):
    table, tokenizer = build_table(3, 4, 0, END), letter_tokenizer("ab")
    save(table, tokenizer, tmp_path)
    again, same = load(tmp_path)
    assert isinstance(again, SoftmaxTable) and same.get_vocab() == tokenizer.get_vocab()
    assert torch.equal(again.model.entries.weight, table.model.entries.weight)
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text()) and not [*tmp_path.glob("*.py")]
    assert isinstance(AutoModelForCausalLM.from_pretrained(tmp_path), SoftmaxTable)


def test_a_critic_on_it_has_a_value_for_every_prefix(table):
    critic = Critic(table)
    critic.head.weight.data.fill_(1.0)
    ids = torch.tensor([[1, 2], [2, 1]])
    prompts = Prompts(torch.tensor([[1]]), torch.tensor([[True]]))
    values = completion_outputs(critic, prompts, ids)[..., 0]
    assert values.shape == (2, 2) and values[0, 0] == values[1, 0] and values[0, 1] != values[1, 1]
