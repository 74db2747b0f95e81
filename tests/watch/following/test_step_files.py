"""Files with the completions of one step: when they are read, and what is in them."""

import json

import pytest

from labcore.errors import LabError
from labcore.watch.following.calls import Pictures
from labcore.watch.following.step_files import PrimeEpisodes, PrimeRollouts, VerlGenerations
from tests.watch.following.tools import Followed


def picture(file: Followed) -> Pictures:
    found, = file.look(settled=True)
    assert isinstance(found, Pictures)
    return found


def test_a_file_is_read_when_it_stops_changing_and_again_when_rewritten(tmp_path):
    file = Followed(tmp_path / "12.jsonl", VerlGenerations)
    line = json.dumps({"input": "a", "output": "b", "score": float("nan")}) + "\n"
    assert file.append(line.encode()) == []
    first = picture(file)
    assert first.step == 12 and str(first.read().rewards["score"]) == "[nan]" and file.look(settled=True) == []
    file.restart()
    assert picture(file).step == 12  # the first was never sent
    first.done()
    assert file.look(settled=True) == []
    file.append(line.encode())
    assert picture(file).read().completions == ["b", "b"]


def test_groups_of_unequal_size_share_a_divisor(tmp_path):
    file = Followed(tmp_path / "1.jsonl", VerlGenerations)
    file.append("".join(json.dumps({"input": prompt, "output": "x", "score": 1}) + "\n" for prompt in "aababbaabb"
                        ).encode())
    found = picture(file).read()
    assert "".join(found.prompts) == "aaaaabbbbb" and found.group == 5
    file.append(b'{"input": "b", "output": "x", "score": 1}\n')
    assert picture(file).read().group == 1


@pytest.mark.parametrize("line, said", [(b"[1]\n", "Line 1 of 1.jsonl is not a JSON object"), (b"{\n", "is not JSON"),
                                        (b"\n", "empty")])
def test_unreadable_files_are_reported_in_one_sentence(line, said, tmp_path):
    file = Followed(tmp_path / "1.jsonl", VerlGenerations)
    file.append(line)
    with pytest.raises(LabError, match=said):
        picture(file).read()


def test_files_of_older_prime_rl(tmp_path):
    folder = tmp_path / "rollouts" / "step_7"
    folder.mkdir(parents=True)
    file = Followed(folder / "train_rollouts.jsonl", PrimeRollouts)
    row = {"prompt": [{"role": "user", "content": "2+2?"}], "completion": [{"role": "assistant", "content": "4"}],
           "reward": 1.0, "advantage": 0.5, "group_id": "g", "metrics": {}}
    file.append(json.dumps(row).encode() + b"\n")
    found = picture(file)
    assert (found.step, found.read().prompts, found.read().completions) == (7, [row["prompt"]], [row["completion"]])
    assert found.read().rewards == {"reward": [1.0]} and found.read().more == {"advantages": [0.5]}


def test_an_episode_of_several_turns_and_agents(tmp_path):
    def node(parent, role, text, sampled, **more):
        return {"parent": parent, "message": {"role": role, "content": text}, "sampled": sampled, **more}
    solver = {"nodes": [node(None, "system", "Be kind.", False), node(0, "user", "2+2?", False),
                        node(1, "assistant", "a dead end", True, advantages=[9.0]),
                        node(1, "assistant", "3", True, advantages=[0.0, 1.0]), node(3, "tool", "wrong", False),
                        node(4, "assistant", "4", True, advantages=[2.0])],
              "rewards": {"correct": {"score": 1.0, "weight": 2.0}, "late": None}}
    judge = {"nodes": [node(None, "user", "Is it 4?", False), node(0, "assistant", "yes", True)], "rewards": {}}
    folder = tmp_path / "rollouts/step_3/train/effective"
    folder.mkdir(parents=True)
    file = Followed(folder / "traces.jsonl", PrimeEpisodes)
    file.append(json.dumps({"id": "e", "traces": [solver, judge]}).encode() + b"\n")
    found = picture(file).read()
    assert found.step == 3 and [[each["content"] for each in prompt] for prompt in found.prompts] == [
        ["Be kind.", "2+2?"]]
    assert [[(each["role"], each["content"]) for each in said] for said in found.completions] == [
        [("assistant", "3"), ("tool", "wrong"), ("assistant", "4")]] and found.more["advantages"] == [1.0]
    assert found.rewards == {"correct": [2.0], "late": [None]}
