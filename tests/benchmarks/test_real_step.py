"""The benchmark on a real model: the folder that both sides get, and its table. Times are never asserted."""

import json

import pytest

from benchmarks import real_step, turns
from benchmarks.grpo_step import Job, lab
from benchmarks.turns import Times
from labcore.llm.nets.model import build, save
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.rendering import ends_of
from tests.llm.tools import TINIER


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = character_tokenizer()
    save(build(TINIER, tokenizer, seed=0), tokenizer, folder)
    return folder


def test_every_completion_has_the_full_length_and_the_model_itself_stays(model, tmp_path):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    real_step.save(str(model), tmp_path)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    rows = [json.loads(line) for line in (tmp_path / real_step.PROMPTS_FILE).read_text().splitlines()]
    assert len(rows) == real_step.ROWS and rows[0]["prompt"].startswith("What is 10 + 10?")
    assert all(str(sum(int(part.strip("?. ")) for part in row["prompt"].split()
                       if part.strip("?.").isdigit())) == row["answer"] for row in rows)
    done = []

    class Turn:
        def ready(self) -> None:
            pass

        def step_done(self, tokens: int) -> None:
            done.append(tokens)
            raise SystemExit

    with pytest.raises(SystemExit):
        lab(tmp_path, "fp32", 1, Turn(), Job(2, 3, 5, real_step.PROMPTS_FILE, knobs=real_step.REWARD))
    assert done == [2 * 3 * 5]
    from labcore.llm.nets.model import load
    network, tokenizer = load(tmp_path)
    assert set(ends_of(tokenizer, network)).isdisjoint(ends_of(*reversed(load(model))))


def test_the_table_has_first_ordinary_and_mean_steps():
    first = {"trl-fp32": Times([30.0], [15.0], 900.0), "lab-fp32": Times([10.0], [5.0], 400.0)}
    rounds = {"trl-fp32": [Times([20.0, 22.0], [10.0, 11.0], 1000.0)],
              "lab-fp32": [Times([8.0, 12.0], [4.0, 6.0], 700.0)]}
    trl, ours = real_step.table(first, rounds).splitlines()[1:]
    assert "30.00 s (1.00×)" in trl and "24.00 s (1.00×)" in trl and "1,000 MB (1.00)" in trl
    assert "10.00 s (3.00×)" in ours and "10.00 s (2.10×)" in ours and "10.00 s (2.40×)" in ours
    assert "700 MB (0.70)" in ours
    assert real_step.cpu_times(first["lab-fp32"]).wall == [5.0]


def test_it_needs_a_model_and_takes_one_step_first(model, monkeypatch, capsys):
    monkeypatch.setattr(real_step, "check_installed", lambda: None)
    assert real_step.main([]) == 1 and "--model DIR" in capsys.readouterr().err
    asked = []

    def measure(save, sides, names, rounds, steps, threads, warm_up, first):
        asked.append((threads, warm_up))
        first |= {name: Times([2.0], [1.0], 9.0) for name in names}
        return {name: [Times([1.0], [1.0], 9.0)] for name in names}
    monkeypatch.setattr(turns, "measure", measure)
    assert real_step.main(["--model", str(model)]) == 0
    assert asked == [(1, 1), (2, 1)] and "processor time" in capsys.readouterr().out
