"""At what groups are judged: nobody wins at the end who used four times as much."""

import json

import numpy as np
import pytest

from labcore.analysis.compare import budget, frontier
from labcore.analysis.compare.best import criteria, spent, standing
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import load
from labcore.analysis.compare.table import compare
from labcore.cli.main import main
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store
from tests.analysis.compare import tools
from tests.words import says


def ran(run_id: str, started: float | None, ended: float | None, host: str = "here") -> RunRow:
    spec = make(algorithm_key="grpo", task_key="sort")
    return RunRow(run_id, spec, "finished" if ended else "running", "", created=0.0, started=started, ended=ended,
                  pid=None, host=host, heartbeat=None, step=3, seconds=1.0, base=None)


def test_times_of_runs_that_went_at_once_on_one_machine_are_said_to_depend_on_it():
    first, second = ran("a", 0.0, 10.0), ran("b", 10.0, 20.0)
    assert budget.shared_time([second, first]) == "" == budget.shared_time([first, ran("queued", None, None)])
    assert budget.shared_time([second, first, ran("c", 15.0, 30.0)]) == budget.SHARED
    assert budget.shared_time([first, ran("going", 5.0, None)]) == budget.SHARED
    assert budget.shared_time([first, ran("c", 5.0, 30.0, "there")]) == ""


@pytest.fixture
def uneven() -> list[str]:
    """Three seeds of GRPO with 12 rows, and three of PPO with 48: better at the end, worse at equal tokens."""
    store = Store()
    rise = {"grpo": np.linspace(0, 0.6, 12), "ppo": np.linspace(0, 0.9, 48)}
    return [tools.stored(store, values + 0.001 * seed, algorithm=key, seed=seed, kl=values)
            for key, values in rise.items() for seed in range(3)]


def test_four_times_the_tokens_win_nothing_at_the_end(uneven):
    traces = load(Store(), uneven)
    found = groups(traces)
    assert criteria(found, "reward") == ["tokens", "updates", "seconds"]
    stand = standing(found, "reward")
    assert (stand.leader, stand.beats, stand.place) == ("GRPO", ("PPO",), 1200)
    assert stand.updates == {"GRPO": 12, "PPO": 12}
    with pytest.raises(LabError, match="cannot be compared by final"):
        standing(found, "reward", "final")
    table = compare(traces, "reward")
    assert table.verdicts == ("tokens", "updates", "seconds") and table.leaders["tokens"] == ("GRPO", ("PPO",))
    assert budget.why_not_at_the_end(table.spent) == budget.why_not_at_the_end(spent(found, "reward"))
    assert says(budget.why_not_at_the_end(table.spent), "PPO", "4,800 tokens", "GRPO", "1,200", "4.0 to 1")
    assert not any("depends on the criterion" in note for note in table.notes), "the end is no verdict"


def test_the_plane_cut_at_equal_tokens_has_the_same_winner(uneven):
    found = [group.until("tokens", 1200) for group in groups(load(Store(), uneven))]
    rewards = {point.label: point.reward for point in frontier.points(found)}
    stand = standing(groups(load(Store(), uneven)), "reward")
    assert rewards == pytest.approx({label: mean.mean for label, mean in stand.means.items()})


@pytest.mark.parametrize("tokens, ends", [(100, True), (109, True), (111, False)])
def test_ends_are_compared_within_a_tenth_of_the_cost(tokens, ends, store):
    runs = [tools.stored(store, [0.5] * 3), tools.stored(store, [0.5] * 3, algorithm="rloo", tokens=tokens)]
    assert ("final" in compare(load(store, runs)).verdicts) == ends


def test_worlds_without_tokens_are_made_equal_in_environment_steps():
    spent_by = {"a": {"env_steps": 100.0, "updates": 10.0}, "b": {"env_steps": 300.0, "updates": 10.0}}
    assert budget.measures(["updates", "env_steps"], spent_by) == ["env_steps", "updates"]
    assert budget.uneven({"a": {"updates": 5.0, "tokens": 1.0}, "b": {"updates": 20.0}}) == ("updates", "b", "a")
    assert budget.uneven({"a": {"tokens": 1.0}, "b": {"updates": 2.0}}) is None, "nothing in common"


def test_the_command_line_leads_with_equal_tokens_too(capsys, uneven):
    assert main(["compare", *uneven]) == 0
    verdicts = capsys.readouterr().out.strip().split("\n\n")[1].splitlines()
    assert says(verdicts[0], "equal tokens", "1,200 each", "GRPO")
    assert says(verdicts[-1], "No verdict at the end", "PPO", "4,800 tokens", "GRPO", "1,200")
    assert not any(line.startswith("at the end") for line in verdicts)
    assert main(["compare", *uneven, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == ["tokens", "updates", "seconds"]
