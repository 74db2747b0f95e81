"""Labels: what somebody picked is a file of preferences, and the task's gold score picks with the task's noise."""

import pytest

from labcore.errors import LabError
from labcore.runs.files import uploads
from labcore.runs.spec.run_spec import make
from labcore.tasks import labels
from labcore.tasks.preferences import labelled_pairs
from labcore.tasks.reviews import gold
from labcore.tasks.task import Pair, Turn


def pair(a: str, b: str, **cut: bool) -> dict:
    return {"prompt": "the plot was ", "a": a, "b": b, "a_truncated": False, "b_truncated": False, "answer": "",
            "line": None, **cut}


def test_what_was_picked_is_what_a_reward_model_reads():
    pairs = [pair("good", "bad"), pair("so", "very good", a_truncated=True), pair("fun", "warm")]
    place = labels.keep(labels.preferences(pairs, ["a", "b", None]))
    assert labelled_pairs(place) == [Pair("the plot was ", "good", "bad", 1),
                                     Pair("the plot was ", "very good", "so", 2, rejected_truncated=True)]
    assert labels.keep(labels.preferences(pairs, ["a", "b", None])) == place, "the same labels are the same upload"
    assert labels.keep(labels.preferences(pairs, ["a", "b", "a"])) != place


def test_a_conversation_keeps_its_turns():
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    place = labels.keep(labels.preferences([pair("good", "bad") | {"prompt": "c", "turns": talk}], ["b"]))
    assert labelled_pairs(place) == [Pair("c", "bad", "good", 1, turns=tuple(Turn(**turn) for turn in talk))]


def test_without_a_pick_there_is_nothing_to_keep():
    with pytest.raises(LabError, match="No pair has a label yet"):
        labels.keep(labels.preferences([pair("good", "bad")], [None]))
    with pytest.raises(LabError, match="no labelled pairs '0123456789abcdef' here"):
        labelled_pairs("0123456789abcdef")
    with pytest.raises(LabError, match=r"no labelled pairs '\.\./\.\./etc' here"):
        labelled_pairs("../../etc")


def test_single_completions_and_broken_flags_are_refused():
    single = uploads.keep("one.jsonl", b'{"prompt": "p", "completion": "c", "label": true}\n'
                                       b'{"prompt": "p", "completion": "d", "label": false}\n')
    with pytest.raises(LabError, match=r"one\.jsonl has single completions with labels, and a reward model learns"):
        labelled_pairs(single.parent.name)
    odd = uploads.keep("odd.jsonl", b'{"prompt": "p", "chosen": "c", "rejected": "d", "rejected_truncated": 1}\n')
    with pytest.raises(LabError, match=r"'rejected_truncated' in line 1 of odd\.jsonl is 1: write true"):
        labelled_pairs(odd.parent.name)


def spec(**knobs):
    return make(algorithm_key="reward_model", task_key="reviews", knobs=knobs)


def test_gold_picks_with_the_noise_of_the_task():
    better, worse = "good", "good but dull"
    assert gold(better) > gold(worse)
    pairs = [pair(better, worse), pair(worse, better)] * 1000
    assert labels.by_gold(spec(label_temperature=0.0), pairs, 0) == ["a", "b"] * 1000
    noisy = labels.by_gold(spec(label_temperature=gold(better) - gold(worse)), pairs, 0)
    share = sum(pick == right for pick, right in zip(noisy, ["a", "b"] * 1000, strict=True)) / 2000
    assert abs(share - 1 / (1 + 2.718281828 ** -1)) < 0.03, "σ(1)"
    assert noisy == labels.by_gold(spec(label_temperature=gold(better) - gold(worse)), pairs, 0), "of the seed alone"


def test_gold_does_not_pick_between_equal_scores_without_noise_nor_where_there_is_none(tmp_path):
    equal = [{**pair("abc", "cba"), "prompt": "cba=", "answer": "abc"}, {**pair("x", "y"), "answer": "abc"}]
    assert labels.by_gold(make(algorithm_key="reward_model", task_key="sort"), equal, 0) == ["a", None]
    file = tmp_path / "own.jsonl"
    file.write_text('{"prompt": "p", "chosen": "c", "rejected": "d"}\n')
    own = make(algorithm_key="reward_model", task_key="preferences", data=str(file))
    with pytest.raises(LabError, match="'preferences' has no score that could label pairs"):
        labels.by_gold(own, equal, 0)
