"""Saved mixes: there and back, what is refused, and files that cannot be read; a mix as part of a spec."""

import json

import pytest

from labcore.analysis.compare.groups import groups
from labcore.catalog.kinds import task
from labcore.errors import LabError
from labcore.runs import fork, mixes, sweep
from labcore.runs.files.paths import home, is_run_id, made
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.store import Store
from labcore.runs.traces import trace
from tests.words import saying, says

MOVED = {"aggregation": "token_mean", "beta": 0.1}


def spec(name: str = "my own", algorithm: str = "grpo", **given):
    return make(algorithm_key=algorithm, task_key="sort", mix=name, steps=8, **{"knobs": MOVED, **given})


def save(name: str, **given) -> mixes.Mix:
    mix = mixes.of_spec(spec(name, **given), name)
    mixes.save(mix)
    return mix


def test_saved_renamed_replaced_and_deleted():
    first, second = save("my own"), save("gated", algorithm="ppo", knobs={"surrogate": "soft_gate"})
    assert mixes.saved() == ([first, second], []) and first.knobs == MOVED, "what is at its default is left out"
    assert mixes.find("MY OWN") == first and not is_run_id(mixes.path().name)
    mixes.rename("my own", "My own")
    mixes.rename("gated", "gated PPO")
    mixes.save(mixes.of_spec(spec("my own", knobs={"beta": 0.2}), "My own"), replace=True)
    assert [(mix.name, mix.knobs) for mix in mixes.saved()[0]] == [
        ("My own", {"beta": 0.2}), ("gated PPO", {"surrogate": "soft_gate"})]
    mixes.delete("My own")
    assert [mix.name for mix in mixes.saved()[0]] == ["gated PPO"]


def test_a_task_s_own_knobs_and_defaults_are_no_part_of_it():
    row_values = dict(spec().knobs)
    assert mixes.of_values("a", "grpo", row_values | {"letters": 4}, task("sort")).knobs == MOVED


@pytest.mark.parametrize("do, words", [
    (lambda: save("MINE"), "There is a mix 'mine' already"), (lambda: mixes.rename("mine", "other"), "already"),
    (lambda: mixes.rename("mine", "GRPO"), "is the name of an algorithm"), (lambda: mixes.delete("mne"), "mean 'mine'"),
    (lambda: mixes.find("zzz"), "There is no saved mix 'zzz'")])
def test_what_is_refused_changes_nothing(do, words):
    save("mine"), save("other")
    before = mixes.path().read_bytes()
    with pytest.raises(LabError, match=words):
        do()
    assert mixes.path().read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"mixes": 3}', "\x00", '{"others": []}'])
def test_a_damaged_file_is_one_sentence_and_is_kept(text):
    made(home())
    mixes.path().write_text(text)
    for do in (mixes.saved, lambda: save("mine"), lambda: mixes.delete("mine")):
        with pytest.raises(LabError, match=r"cannot be read: .*It is kept as it is"):
            do()
    assert mixes.path().read_text() == text


def test_an_entry_of_a_newer_lab_is_named_and_kept():
    known = save("mine")
    entries = json.loads(mixes.path().read_text())["mixes"]
    newer = [{"name": "b", "algorithm": "grpo", "knobs": {"warp": 1}}, {"name": "c", "algorithm": "zzz", "knobs": {}},
             7]
    mixes.path().write_text(json.dumps({"mixes": [*entries, *newer]}))
    found, faults = mixes.saved()
    assert found == [known] and [says(fault, f"Entry {number}", "mixes.json", "kept") for number, fault in zip(
        (2, 3, 4), faults, strict=True)] == [True] * 3
    save("another")
    assert json.loads(mixes.path().read_text())["mixes"][1:4] == newer


# ---- as part of a run ----------------------------------------------------------------------------------------------


def test_a_spec_of_no_mix_is_written_as_before_and_one_of_a_mix_comes_back():
    plain = make(algorithm_key="grpo", task_key="sort")
    assert "mix" not in json.loads(plain.to_json()) and RunSpec.from_json(plain.to_json()) == plain
    mine = spec()
    assert RunSpec.from_json(mine.to_json()) == mine and mine.hash() != plain.hash()
    assert mine.row.label == "my own" and "critic_learning_rate" in mine.knobs
    older = json.loads(mine.to_json())
    del older["knobs"]["ratio_cap"]  # a knob that came after it was written
    assert RunSpec.from_json(json.dumps(older)).knobs["ratio_cap"] == 5.0


def test_an_invalid_mix_is_refused_in_words():
    with pytest.raises(LabError, match=saying("mix of your own", "every knob")):
        make(algorithm_key="grpo", task_key="sort", knobs={"surrogate": "soft_gate"})
    with pytest.raises(LabError, match="needs a ratio: set `ratio=token`"):
        spec(knobs={"ratio": "none"})
    with pytest.raises(LabError, match="`group_size` is 1, but my own compares completions"):
        spec(knobs={"group_size": 1})


def test_sweeps_forks_and_labels_keep_the_name():
    specs = sweep.grid(spec(), {"beta": [0, 0.1]}, [0])
    assert {each.mix for each in specs} == {"my own"}
    store = Store()
    rows = [store.run(store.create(each)) for each in (
        *specs, make(algorithm_key="grpo", task_key="sort", steps=8), spec("other", knobs={}))]
    found = groups([trace(row, (), []) for row in rows])
    assert [group.label for group in found] == ["my own beta 0", "my own beta 0.1", "GRPO", "other"]
    assert [group.config.get("mix") for group in found] == ["my own", "my own", None, "other"]
    assert "gae_lambda" not in found[0].config, "no critic, so it sets nothing"
    assert fork.compatible(specs[0])[0].label == "my own"
    assert {knob.key for knob in fork.movable(specs[0], "grpo")} > {"gate_positive", "ratio_cap"}
