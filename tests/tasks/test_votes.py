"""Votes on the disk: what the task of preferences reads, and what a power cut leaves."""

import json

import numpy as np
import pytest

from labcore.errors import LabError
from labcore.runs.files import atomic
from labcore.tasks import votes
from labcore.tasks.preferences import Preferences
from labcore.tasks.votes import Side, Tally

A, B = "grpo-sort-a@60", "base:grpo-sort-a"


def test_the_pairs_are_what_the_preferences_task_reads():
    votes.prefer("dbca=", Side(A, "abcd"), Side(B, "abdc"), temperature=1.0, seed=3)
    votes.prefer("ba=", Side(B, "ab\n\"é"), Side(A, ""), temperature=1.0, seed=3)
    task = Preferences({}, votes.pairs_file())
    assert task.size == votes.count() == 2
    assert {(p.prompt, p.chosen, p.rejected) for p in task.pairs(2, np.random.default_rng(0))} == {
        ("dbca=", "abcd", "abdc"), ("ba=", "ab\n\"é", "")}
    row = json.loads(votes.pairs_file().read_text().splitlines()[0])
    assert (row["chosen_model"], row["rejected_model"], row["temperature"], row["seed"]) == (A, B, 1.0, 3)
    assert row["time"] > 1e9


def test_a_vote_on_a_conversation_keeps_its_turns():
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    votes.prefer(talk, Side(A, "d"), Side(B, "e"))
    [pair] = Preferences({}, votes.pairs_file()).rows
    assert (pair.prompt, [turn._asdict() for turn in pair.turns]) == ("c", talk)


def test_the_tally_counts_both_ways_and_ties_apart():
    assert votes.tally(A, B) == Tally(0, 0, 0) and votes.count() == 0
    for _ in range(2):
        votes.prefer("a=", Side(A, "x"), Side(B, "y"))
    votes.prefer("a=", Side(B, "x"), Side(A, "y"))
    votes.prefer("a=", Side(A, "x"), Side("other@1", "y"))
    votes.tie("a=", Side(B, "x"), Side(A, "y"))
    assert votes.tally(A, B) == Tally(2, 1, 1) and votes.tally(B, A) == Tally(1, 2, 1)
    assert votes.tally(A, B).decided == 3 and votes.count() == 4
    assert Preferences({}, votes.pairs_file()).size == 4  # no tie among them


@pytest.mark.parametrize("half", [b'{"prompt": "b=", "cho', b'{"prompt": "b=", "about": {}', b'{"prompt": "b={}',
                                  b'{"prompt": "\xc3', b'"b="', b"}"])
def test_what_a_power_cut_left_of_a_line_counts_as_nothing_and_is_cut_off(half):
    votes.prefer("a=", Side(A, "x"), Side(B, "y"))
    with votes.pairs_file().open("ab") as file:
        file.write(half)
    assert votes.count() == 1 and votes.tally(A, B) == Tally(1, 0, 0)
    votes.prefer("c=", Side(A, "x"), Side(B, "y"))
    assert [json.loads(line)["prompt"] for line in votes.pairs_file().read_text().splitlines()] == ["a=", "c="]


def test_a_whole_vote_without_the_end_of_its_line_stays():
    for prompt in ("a=", "b="):
        votes.prefer(prompt, Side(A, "x"), Side(B, "y"))
    votes.pairs_file().write_text(votes.pairs_file().read_text().rstrip("\n"))
    assert votes.count() == 2
    votes.prefer("c=", Side(A, "x"), Side(B, "y"))
    assert [json.loads(line)["prompt"] for line in votes.pairs_file().read_text().splitlines()] == ["a=", "b=", "c="]


def test_a_vote_is_synced_before_the_next(monkeypatch):
    synced = []
    monkeypatch.setattr(atomic.os, "fsync", synced.append)
    votes.prefer("a=", Side(A, "x"), Side(B, "y"))
    votes.tie("a=", Side(A, "x"), Side(B, "y"))
    assert len(synced) == 2


@pytest.mark.parametrize("prompt, chosen, rejected", [("a=", "x", "x"), ("", "x", "y")])
def test_what_is_no_pair_is_not_kept(prompt, chosen, rejected):
    with pytest.raises(LabError, match="make no pair"):
        votes.prefer(prompt, Side(A, chosen), Side(B, rejected))
    assert not votes.pairs_file().exists()


def test_a_folder_that_cannot_be_written_is_told():
    votes.pairs_file().mkdir(parents=True)
    with pytest.raises(LabError, match="could not be kept in"):
        votes.prefer("a=", Side(A, "x"), Side(B, "y"))
