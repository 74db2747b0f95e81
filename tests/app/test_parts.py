"""The pure parts: feed and payload, words, tokens, knobs as widgets, the equation's sources."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from app import tokens
from app.llm import own_tabs
from app.marked import worded
from app.training import controls, equation, status_line, uploads
from app.training.chart_data import payload
from app.training.feed import MOST, Feed, panels
from app.training.knobs import knobs_of
from labcore.catalog.choices import FAMILIES
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.tasks import TASKS
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Event, Step
from tests.app.seeding import samples
from tests.every import every


def feed(count: int, algorithm: str = "grpo") -> Feed:
    found = Feed(make(algorithm_key=algorithm, task_key="sort", steps=max(count, 1)))
    found.take([Step(step, 10 * step, 0, step / 4, {"reward": step / 10, "updates": 2.0 * step})
                for step in range(1, count + 1)], [])
    return found


def test_only_new_rows_and_an_overlap_are_sent():
    one = feed(200)
    full = payload({"a": one}, full=True, x="updates", smooth=0.0, ended=False)
    assert len(full["runs"]["a"]["rows"]) == 200
    one.take([Step(201, 2010, 0, 51.0, {"reward": 1.0})], [])
    delta = payload({"a": one}, full=False, x="updates", smooth=0.0, ended=False)["runs"]["a"]
    assert delta["after"] == 150 and len(delta["rows"]) == 51
    assert len(json.dumps(delta)) < 6000


def test_rows_are_never_taken_twice():
    one = feed(5)
    one.take(one.steps[2:], [])
    assert [step.step for step in one.steps] == [1, 2, 3, 4, 5]


def test_a_very_long_run_is_thinned_and_keeps_its_last_row():
    one = feed(2 * MOST + 3)
    rows = one.rows(0)
    assert len(rows) <= MOST and rows[-1][0] == 2 * MOST + 3


def test_runs_lie_over_each_other_in_their_own_colours_with_their_own_markers():
    feeds = {"a": feed(3), "b": feed(3)}
    moved = {"knob": "beta", "from": 0.04, "to": 1.0, "update": 4, "between": 1, "text": "β 0.04 → 1"}
    feeds["b"].take([], [Event(1, 2, "knob", moved, 0.0)])
    data = payload(feeds, full=True, x="tokens", smooth=0.5, ended=False)
    assert data["runs"]["a"]["colour"] != data["runs"]["b"]["colour"]
    assert data["markers"] == [{"run": "b", "step": 1, "update": 4, "text": "β 0.04 → 1", "event": 1,
                                "beside": False}]
    assert feeds["b"].knobs()["beta"] == 1


@every("algorithm", ALGORITHMS)
def test_the_charts_of_an_algorithm_are_its_row_s(algorithm):
    data = payload({"a": feed(0, algorithm)}, full=True, x="updates", smooth=0.0, ended=False)
    row = ALGORITHMS[algorithm]
    alone = any(knob.key == "group_size" and knob.default == 1 for knob in row.knobs)
    left_out = {*(["exact_match"] if "reward" in row.panels else []), *(["zero_variance"] if alone else [])}
    assert [panel["key"] for panel in data["panels"]] == [key for key in row.panels if key not in left_out]
    assert [panel["large"] for panel in data["panels"]] == [place < 3 for place in range(len(data["panels"]))]
    for panel in data["panels"]:
        assert {metric["share"] for metric in panel["metrics"]} == {panel["scale"] in ("rate", "small rate")}


def test_an_ended_run_shows_no_chart_without_values():
    assert [p["key"] for p in payload({"a": feed(3)}, full=True, x="updates", smooth=0, ended=True)["panels"]] == [
        "reward"]


def test_progress_in_words():
    run = type("Run", (), {"step": 4, "spec": make(algorithm_key="grpo", task_key="sort", steps=12)})
    assert status_line.progress(run, feed(4)) == ["step 4 of 12", "8.0 updates/s", "at most 2.0 s left"]


def test_tiles_have_their_first_number_and_a_unit_where_it_is_a_new_one():
    tiles = {tile["key"]: tile for tile in status_line.numbers(feed(5))}
    assert (tiles["reward"]["first"], tiles["reward"]["digits"], tiles["reward"]["unit"]) == (0.1, 3, "")
    assert tiles["kl"]["unit"] == "nats/token" and tiles["kl"]["first"] is None
    assert tiles["tokens_per_second"]["first"] is None, "speed says nothing of learning"


def test_the_rows_of_a_run_have_the_numbers_of_its_tiles():
    one = feed(1)
    one.take([Step(2, 20, 0, 0.5, {"tokens_per_second": 1000.0, "frac_reward_zero_std": 0.5, "other": 1.0})], [])
    drawn = one.rows(1)[0][3]
    assert drawn.keys() == {"tokens_per_second", "frac_reward_zero_std"}


@pytest.mark.parametrize("kind, algorithm, task, unit", [
    ("maze", "q_learning", "corridors", "moves/s"), ("cartpole", "ppo", "CartPole-v1", "env steps/s")])
def test_the_speed_in_the_world_is_in_other_words_than_steps_of_the_run(kind, algorithm, task, unit):
    found = Feed(make(kind=kind, algorithm_key=algorithm, task_key=task, steps=9))
    found.take([Step(1, 0, 100, 0.5, {"env_steps_per_second": 295.0})], [])
    [tile] = [tile for tile in status_line.numbers(found) if tile["label"] == "Speed"]
    assert tile["unit"] == unit and found.rows(0)[0][3][tile["key"]] == 295


def test_what_a_model_wrote_is_escaped_and_visible():
    group = samples()["groups"][0]
    strip = tokens.strip(group["completions"][1], tokens.VIEWS["logprobs"])
    assert "<b>" not in strip and "↵" in strip and "−0.10" in strip


def test_what_is_cut_off_is_seen_and_an_earlier_file_still_opens():
    completion = samples(ratio=1.5)["groups"][0]["completions"][0]
    strip = tokens.strip(completion, tokens.VIEWS["k3"])
    assert strip.count("outline:2px dashed") == 4 and "KL, k3 0.020 nats · " in strip
    assert "clipped: ratio too high" in strip
    earlier = {key: value for key, value in completion.items() if key not in ("kl", "cut")}
    assert "dashed" not in tokens.strip(earlier, tokens.VIEWS["ratio"])


def test_every_knob_has_a_widget_and_a_help_that_says_when_it_counts():
    for knob in {knob for row in ALGORITHMS.values() for task in TASKS.values() for knob in knobs_of(row, task)}:
        assert controls.kind(knob) in controls.WIDGETS
        assert worded(knob.help) in controls.words(knob, True)
        if controls.kind(knob) == "stops":
            grid = controls.stops(knob, [knob.default])
            assert knob.default in grid and grid == sorted(grid) and len(grid) < 70
            assert {*map(float, knob.reach or knob.safe)} <= {*grid}


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo", "reinforce", "dpo"])
def test_the_source_of_the_row_s_choices_is_found_without_importing_it(algorithm):
    row = ALGORITHMS[algorithm]
    found = equation.sources(row, {})
    keys = {family.key for family in FAMILIES} | {"preference_loss"}
    wanted = [knob for knob in row.knobs if knob.key in keys and (knob.key, knob.default) != ("ratio", "none")]
    assert len(found) >= len(wanted) > 0 and all(source.text.startswith("def ") for source in found)


def test_an_upload_is_kept_once_by_its_content(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    first, again = uploads.keep("../a.jsonl", b"{}"), uploads.keep("a.jsonl", b"{}")
    assert first == again and first.is_relative_to(tmp_path) and first.name == "a.jsonl"
    assert [path.name for path in first.parent.iterdir()] == ["a.jsonl"]


def test_an_upload_that_cannot_be_kept_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))

    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LabError, match=r"a\.jsonl cannot be kept .*No space left"):
        uploads.keep("a.jsonl", b"{}")


def test_a_legend_names_only_the_lines_that_there_are():
    spec = make(algorithm_key="grpo", task_key="sort")
    empty, begun = Feed(spec), Feed(spec)
    begun.take([Step(1, 10, 0, 0.1, {"reward": 0.4})], [])

    def lines(feed):
        return {panel["key"]: [metric["key"] for metric in panel["metrics"]] for panel in panels(spec, [feed], False)}

    assert lines(empty)["reward"] == ["reward"], "all others are no share of completions"
    assert lines(begun)["reward"] == ["reward"]
    assert lines(begun)["kl"] == lines(empty)["kl"]  # nothing yet: the chart waits with all its lines


@pytest.mark.parametrize(("algorithm", "knobs", "there"), [
    ("grpo", {}, True), ("sapo", {}, True), ("cispo", {}, True), ("raft", {}, False), ("dpo", {}, False),
    ("grpo", {"surrogate": "score_function", "ratio": "none"}, False)])
def test_the_surrogate_s_tab_is_there_where_it_is_one_of_a_ratio(algorithm, knobs, there):
    run = SimpleNamespace(spec=make(algorithm_key=algorithm, task_key="sort", knobs=knobs))
    assert own_tabs.TABS["Surrogate"][1](run) is there
