"""Several runs in one file: each becomes an import of its own, and no number of one replaces one of another."""

import pytest

from labcore.runs.imports.reading import parse
from tests.runs.imports import files
from tests.words import says


def runs(content: bytes, label: str = "") -> dict[str, list[tuple[int, float]]]:
    """The rewards of each run in a file, by its label."""
    return {run.label: [(row.step, row.metrics["reward"]) for row in run.steps() if "reward" in row.metrics]
            for run in parse("log.csv", content, label)}


def csv(*rows: str, header: str = "step,reward") -> bytes:
    return "\n".join([header, *rows, ""]).encode()


def test_steps_that_begin_again_are_another_run():
    first, second = runs(files.TWO_RUNS).items()
    assert first == ("log 1", [(step, 0.25) for step in range(1, 11)])
    assert second == ("log 2", [(step, 0.75) for step in range(1, 11)])
    assert [run.label for run in parse("log.csv", files.TWO_RUNS, "grpo")] == ["grpo", "grpo"], "seeds of one group"
    run, _ = parse("log.csv", files.TWO_RUNS)
    assert says(run.notes[0], "Run 1 of 2", "begin again", "line 12")


def test_columns_of_one_name_are_runs_of_their_own():
    assert runs(files.SAME_NAME) == {"log grpo 1": [(1, 0.25), (2, 0.5)], "log grpo 2": [(1, 0.75), (2, 1.0)]}
    assert [run.label for run in parse("log.csv", files.SAME_NAME, "mine")] == ["mine grpo"] * 2
    side = csv("1,0.25,0.1,1,0.75", "2,0.5,0.2,3,1.0", header="step,reward,kl,step,reward")
    assert runs(side) == {"log 1": [(1, 0.25), (2, 0.5)], "log 2": [(1, 0.75), (3, 1.0)]}
    assert [sorted(run.mapped) for run in parse("log.csv", side)] == [["kl", "reward", "step"], ["reward", "step"]]


@pytest.mark.parametrize("rows, found", [
    (("3,0.3", "1,0.1", "2,0.2"), [[1, 2, 3]]),  # in disorder
    (("1,0.1", "2,0.2", "1,", "3,0.3"), [[1, 2, 3]]),
    (("1,0.1", "2,0.2", "2,0.2", "3,0.3"), [[1, 2, 3]]),  # a row twice
    (("1,0.1", "2,0.2", "3,0.3", "2,0.5", "3,0.6", "4,0.7"), [[1, 2, 3], [2, 3, 4]]),  # resumed from a checkpoint
    (("1,0.1", "2,0.2", "1,0.1", "2,0.2"), [[1, 2], [1, 2]]),  # the same seed again
    (("1,0.1", "2,0.2", "step,reward", "1,0.3", "2,0.4"), [[1, 2], [1, 2]]),  # one file after the other
    (("1,0.1", "1,0.5", "2,0.2", "2,0.6", "3,0.3", "3,0.7"), [[1, 2, 3], [1, 2, 3]]),  # written in turn
    (("1,0.1", "2,0.2", "1,0.3", "2,0.4", "1,0.5"), [[1, 2], [1, 2], [1]])])
def test_what_is_one_run_and_what_are_several(rows, found):
    got = runs(csv(*rows))
    assert [[step for step, _ in run] for run in got.values()] == found
    written = sorted({row for row in rows if row[-1].isdigit()})
    assert sorted({f"{step},{reward}" for run in got.values() for step, reward in run}) == written


def test_a_column_that_names_the_run_tells_them_apart():
    content = csv("a,1,0.25", "b,1,0.75", "a,2,0.5", "b,2,1.0", header="run_id,step,reward")
    assert runs(content) == {"log a": [(1, 0.25), (2, 0.5)], "log b": [(1, 0.75), (2, 1.0)]}
    assert runs(csv("1,a,0.25", "2,b,0.5", header="step,name,reward")) == {"log": [(1, 0.25), (2, 0.5)]}


def test_of_two_numbers_at_one_step_the_later_counts_and_the_other_is_said():
    run, = parse("log.csv", csv("1,0.1", "2,0.2", "2,0.3", "3,0.4", "4,0.5", ",0.6"))
    assert [row.metrics["reward"] for row in run.steps()] == [0.1, 0.3, 0.4, 0.5]
    assert says(run.left["reward"], "1 of its 6 numbers", "no step", "1 of its 5 numbers", "same step")
