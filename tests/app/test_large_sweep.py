"""The Sweep view of a large sweep: what it asks and sends, who wins, which knob matters, and what it must not say."""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.compare.data import reader
from app.compare.sweep.large import figures, view
from app.compare.sweep.large.standing import ends, headline, standing
from app.compare.sweep.large.standing import table as table_html
from benchmarks.sweep_at_size import StandIn
from labcore.analysis.compare.ranking import Axis
from labcore.catalog.metrics import METRICS
from labcore.cli.main import main
from labcore.runs import sweep
from labcore.runs.halving import Halving
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.schema import sweeps
from labcore.runs.store.store import Store
from tests.analysis.compare.tools import append
from tests.app.seeding import drawn, html, link, ran
from tests.queries import counted
from tests.words import says

STEPS = 3
REWARD = "Reward (exact match)"
SMALL = {"learning_rate": [1e-4, 1e-3, 1e-2], "beta": [0.0, 0.05, 0.2]}


def queued(lab, axes=SMALL, seeds=8):
    """A sweep whose runs wait."""
    spec = make(algorithm_key="grpo", task_key="sort", steps=STEPS)
    return sweep.queue(lab.store, sweep.grid(spec, axes, range(seeds)))


def done(lab, **how):
    sweep_id = queued(lab, **how)
    StandIn(lab.store, sweep_id, 16).work()
    return sweep_id


@pytest.fixture(scope="module")
def worked(tmp_path_factory) -> tuple[Path, str]:
    """The database of a lab whose sweep is done, and the sweep's id."""
    path = tmp_path_factory.mktemp("worked") / "lab.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(path.parent))
        sweep_id = done(SimpleNamespace(store=Store(f"sqlite:///{path}")))
    return path, sweep_id


@pytest.fixture
def done_sweep(lab, worked, tmp_path) -> str:
    """The id of a sweep that is done in this lab too."""
    path, sweep_id = worked
    with closing(sqlite3.connect(path)) as made, closing(sqlite3.connect(tmp_path / "lab.db")) as here:
        made.backup(here)
    return sweep_id


def told(test) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<style.*?</style>|<[^>]+>", " ", html(test), flags=re.DOTALL))


def table(test) -> list[list[str]]:
    body = re.search(r"<tbody>(.*?)</tbody>", html(test), re.DOTALL)[1]
    return [[re.sub(r"<[^>]+>", " ", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
            for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]


def sent(test) -> int:
    """Bytes of what the browser is given of the page's own: text, tables and pictures."""
    return sum(element.proto.ByteSize() for kind in ("html", "bidi_component") for element in test.get(kind))


def test_it_asks_as_often_for_many_runs_as_for_few_and_sends_little_more(page, lab, monkeypatch):
    monkeypatch.setattr(view, "LARGE", 10)
    asked, size = [], []
    for axes in (SMALL, SMALL | {"group_size": [4, 8]}):
        sweep_id = done(lab, axes=axes, seeds=2)
        reader.clear()
        ends.clear()
        with counted() as queries:
            test = page("compare", sweep=sweep_id, view="sweep")
        asked.append(len(queries))
        size.append(sent(test))
    assert asked[0] == asked[1] < 25
    assert size[1] < 1.6 * size[0], "twice the runs"


def test_it_says_who_wins_which_knob_matters_and_by_how_much(page, done_sweep):
    test = page("compare", sweep=done_sweep)
    assert "Of 9 settings the best is β 0.05 · η 0.001 (" in (said := told(test)) and ", 8 seeds)." in said
    assert f"{REWARD} by knob" in drawn(test) and len(drawn(test)) == 3
    assert [sum(says(title, *facts) for title in drawn(test)) for facts in (
        ("Reward", "η", "β"), ("Reward", "best", "median", "worst"))] == [1, 1]
    first, second = drawn(test)[f"{REWARD} by knob"]["layout"]["annotations"]
    shares = [int(re.search(r"(\d+) % of the variance", each["text"])[1]) for each in (first, second)]
    assert "Learning rate" in first["text"] and shares[0] > shares[1]
    assert "Shares are estimates (ω²); seeds of one setting make" in said
    [heat] = drawn(test)[f"{REWARD} by Learning rate η and KL coefficient β"]["data"]
    assert 1 < max(value for line in heat["z"] for value in line) == heat["z"][1][1] <= 100
    assert heat["hovertemplate"].endswith("%{z:.3~g} %<extra></extra>")
    curves = drawn(test)[f"{REWARD}: the best, the median and the worst setting"]["data"]
    assert len([each for each in curves if each.get("fill")]) == 3
    named = [each["name"].partition(":")[0] for each in curves if each.get("showlegend")]
    assert named == ["Best", "Median", "Worst"]
    rows = table(test)
    assert [row[0] for row in rows] == [str(place) for place in range(1, 10)] and rows[0][2:4] == ["0.05", "0.001"]
    assert "8 finished" in rows[0][4] and re.match(r"\d\d\.\d % \[\d\d\.\d %, \d\d\.\d %\]", rows[0][1])


def test_one_seed_has_no_band_and_is_no_evidence(page, lab, monkeypatch):
    monkeypatch.setattr(view, "LARGE", 10)
    test = page("compare", sweep=done(lab, axes={"beta": [place / 400 for place in range(21)]}, seeds=1))
    assert "not enough to rank" in (said := told(test)) and "bootstrap" not in said
    assert "seeds of one setting" not in said and "[" not in table(test)[0][1]
    curves = drawn(test)[f"{REWARD}: the best, the median and the worst setting"]["data"]
    assert not [each for each in curves if each.get("fill")]
    assert "Together" not in said, "there is one knob"
    [pager] = test.get("pagination")
    assert pager.proto.num_pages == 2 and len(table(test)) == 20
    test.session_state["at_size:page:2"] = 2
    ran(test)
    assert [row[0] for row in table(test)] == ["21"]


def test_what_was_stopped_early_is_marked_and_has_no_rank(page, lab, monkeypatch):
    monkeypatch.setattr(sweep, "early_stopping", lambda *_: Halving("reward", 2, 3))
    sweep_id = queued(lab)
    runs = lab.store.sweep_runs(sweep_id)
    for run in runs[:40]:
        lab.store.ask(run.id, "stop", {
            "why": "Stopped early at step 2: its reward 0.1 is not the best of 2 runs …", "early": True})
    StandIn(lab.store, sweep_id, 16).work()
    test = page("compare", sweep=sweep_id)
    said = told(test)
    assert "40 stopped early" in said and "32 finished" in said
    assert "The best of the 32 runs that finished: β 0" in said and " runs of its setting finished." in said
    assert says(said, "ranked", "all of its runs have finished")
    rows = table(test)
    assert {row[0] for row in rows} == {"–"} and "of the 4 that finished" in rows[0][1] and "[" not in rows[0][1]
    assert "stopped early" in rows[0][4]
    assert f"{REWARD} at step 2, before any run is stopped early" in said
    assert all(len(effect["x"]) for effect in drawn(test)[f"{REWARD} by knob"]["data"])


@pytest.mark.long
def test_where_only_better_runs_of_a_setting_finished_its_curve_has_no_band(page, lab, monkeypatch):
    monkeypatch.setattr(sweep, "early_stopping", lambda *_: Halving("reward", 2, 3))
    sweep_id = queued(lab)
    for run in lab.store.sweep_runs(sweep_id)[9:]:  # of each setting the first seed finishes, and of β 0.05 all
        if run.spec.knobs["beta"] != 0.05 and run.spec.seed > 2:
            lab.store.ask(run.id, "stop", {
                "why": "Stopped early at step 2: its reward 0.1 is not the best of 2 runs.", "early": True})
    StandIn(lab.store, sweep_id, 16).work()
    test = page("compare", sweep=sweep_id)
    curves = drawn(test)[f"{REWARD}: the best, the median and the worst setting"]["data"]
    whole = {each["name"] for each in curves if each.get("fill")}
    named = [each["name"] for each in curves if each.get("showlegend")]
    assert whole and whole == {each for each in named if "finished)" not in each} and len(whole) < 3
    assert "without a band where a run did not finish" in told(test)


def test_while_it_goes_the_worst_is_none_that_has_just_started(page, lab):
    """Two settings are done, a third one has made a step: the curves are of those two."""
    sweep_id = queued(lab)
    done_by = {0.0: 0.5, 0.05: 0.9}
    for run in lab.store.sweep_runs(sweep_id):
        beta, rate = run.spec.knobs["beta"], run.spec.knobs["learning_rate"]
        if rate == 1e-3 and (beta in done_by or beta == 0.2):
            lab.store.claim(run.id)
            lab.store.set_state(run.id, "running")
            append(lab.store, run.id, [(Record(step, step, {"reward": done_by.get(beta, 0.0)}), float(step))
                                       for step in range(1, 1 + (STEPS if beta in done_by else 1))])
            if beta in done_by:
                lab.store.set_state(run.id, "finished")
    test = page("compare", sweep=sweep_id)
    curves = drawn(test)[f"{REWARD}: the best, the median and the worst setting"]["data"]
    assert [each["name"] for each in curves if each.get("showlegend")] == ["Best: β 0.05 · η 0.001",
                                                                           "Worst: β 0 · η 0.001"]
    assert "the 2 settings whose runs have all ended" in told(test)


def test_before_a_setting_is_done_no_curve_is_called_the_best(page, lab):
    sweep_id = queued(lab)
    run = lab.store.sweep_runs(sweep_id)[0]
    lab.store.claim(run.id)
    lab.store.set_state(run.id, "running")
    lab.store.append(run.id, Record(1, 1, {"reward": 0.5}), 1.0)
    test = page("compare", sweep=sweep_id)
    assert not drawn(test) and any("once all runs of a setting have ended" in each.value for each in test.caption)


def test_the_command_names_the_winner_of_the_page(page, lab, capsys):
    """Also where early stopping goes by another metric than the first chart, and a run was steered by hand."""
    spec = make(algorithm_key="grpo", task_key="sort", steps=STEPS)
    sweep_id = sweep.queue(lab.store, sweep.grid(spec, {"beta": [0.0, 0.1, 0.2]}, range(24)))
    with lab.store._writing() as connection:
        connection.execute(sweeps.insert(), {"id": sweep_id, "halving": Halving("kl", 2, 3).to_json()})
    for run in lab.store.sweep_runs(sweep_id):
        lab.store.claim(run.id)
        lab.store.set_state(run.id, "running")
        beta, steered = run.spec.knobs["beta"], run.spec.knobs["beta"] == 0.1 and not run.spec.seed
        kl = 1.0 - beta - 90 * steered  # the lowest of all, but for the run that was steered: β 0.2
        append(lab.store, run.id, [(Record(step, step, {"reward": 1.0 - beta, "kl": kl}), float(step))
                                   for step in range(1, STEPS + 1)])
        if steered:
            lab.store.log(run.id, "knob", {"knob": "beta", "from": 0.1, "to": 0.2, "update": 2, "between": 1,
                                           "text": "β"}, 3)
        lab.store.set_state(run.id, "finished")
    assert "the best is β 0.2 (" in told(page("compare", sweep=sweep_id))
    assert main(["sweeps", sweep_id]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(line for line in lines if line.lstrip().startswith("1 "))
    assert first.split()[:2] == ["1", "0.8"] and first.endswith("KL coefficient β 0.2")
    assert says(lines[-1], "Left out", "knob was changed", "1")


def test_while_it_goes_it_says_so(page, lab):
    sweep_id = queued(lab)
    StandIn(lab.store, sweep_id, 16).work(lambda: lab.store.tally(sweep_id).get("finished", 0) >= 30)
    test = page("compare", sweep=sweep_id)
    assert "runs that have finished so far" in told(test) or "So far" in told(test)
    assert "of 216 steps · about" in told(test)
    assert any(each.label.startswith("Cancel") for each in test.button)


def test_empty_and_failed_sweeps_are_said_in_words(page, lab):
    sweep_id = queued(lab)
    test = page("compare", sweep=sweep_id)
    assert any("Nothing to show before" in each.value for each in test.info) and not drawn(test)
    for run in lab.store.sweep_runs(sweep_id):
        lab.store.claim(run.id)
        lab.store.set_state(run.id, "failed", "The model cannot be read: check the path.")
    ran(test)
    assert any(says(each.value, "None", "made a step", "72", "The model cannot be read") for each in test.info)
    assert "72 failed" in told(test)


def test_a_metric_that_nobody_logged_and_one_without_a_better(page, done_sweep):
    test = page("compare", sweep=done_sweep, metric="reward/gold")
    assert any("No run has logged gold reward" in each.value for each in test.info)
    test = page("compare", sweep=done_sweep, metric="entropy")
    assert "settings are not ranked" in (said := told(test)) and {row[0] for row in table(test)} == {"–"}
    assert "one row per setting, highest first" in said and "the best first" not in said
    [box] = [each for each in test.selectbox if each.label == "Metric"]
    assert box.help == "Metric shown for the runs"
    assert any(each.label == "Curves of the first 8" for each in test.button)


def test_a_run_that_was_steered_by_hand_is_left_out_and_said(page, lab, done_sweep):
    run = lab.store.sweep_runs(done_sweep)[0]
    lab.store.log(run.id, "knob", {"knob": "beta", "from": 0.0, "to": 0.2, "update": 2, "between": 1, "text": "β"}, 3)
    assert says(told(page("compare", sweep=done_sweep)), "Left out", "1 run", "knob was changed")
    assert len(standing(done_sweep, lab.store.sweep_runs(done_sweep), "reward").rows) == 71


@pytest.mark.long
def test_the_best_settings_are_compared_as_curves_in_a_link_that_fits(page, done_sweep):
    test = page("compare", sweep=done_sweep)
    next(each for each in test.button if each.label == "Curves of the best 8").click()
    ran(test)
    assert "sweep" not in link(test) and len(link(test)["runs"].split(",")) == 64


def test_a_sweep_that_is_not_large_has_a_chart_of_each_setting_as_before(page, lab, monkeypatch):
    monkeypatch.setattr(view, "LARGE", 8)
    sweep_id = done(lab, axes={"beta": [0.0, 0.05, 0.1, 0.2]}, seeds=2)
    test = page("compare", sweep=sweep_id, view="sweep")
    assert "Reward (exact match) by KL coefficient" in drawn(test)


def test_a_lead_that_a_few_seeds_make_is_put_down_to_luck(lab):
    sweep_id = done(lab, axes={"beta": [0.0, 0.05]}, seeds=7)
    now = standing(sweep_id, lab.store.sweep_runs(sweep_id), "reward")

    def said(*values: list[float]) -> str:
        runs = [run.id for setting in now.ranked for run in setting.runs]
        return headline(replace(now, values=dict(zip(runs, chain(*values), strict=True))))

    rest = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    assert says(said([0.0] * 6 + [100.0], rest), "Seeds alone can explain", "next setting")
    assert "It is better than the next setting, " in said([100.0] * 7, rest)
    assert says(said(rest, rest), "Seeds alone can explain", "next setting")


def test_a_text_of_the_user_is_shown_as_text_in_every_picture(lab, done_sweep):
    bad = "<b onmouseover=x>"
    now = standing(done_sweep, lab.store.sweep_runs(done_sweep), "reward")
    named = Axis(bad, (bad, "a"), lambda run: bad if run.spec.seed else "a")
    now = replace(now, axes=(named, now.axes[0]))
    points = figures.points_of(now.rows, now.axes, now.alike)
    made = json.dumps([figures.knobs(now.effects, points, now.axes, now.metric, "light"),
                       figures.two_knobs(now.axes[0], now.axes[1], points, now.axes, now.metric, "light")])
    shown = table_html(now, now.ranked, 0) + headline(now)
    assert bad not in made + shown and "&lt;b onmouseover" in made and "&lt;b onmouseover" in shown


def test_a_map_has_numbers_that_can_be_read_and_none_where_there_is_no_room():
    assert figures._some(list(range(30))) == list(range(0, 30, 4))
    z = [[0.0, None], [1.0, 0.5]]
    assert "#FFFFFF" in figures._inked(0.0, z, METRICS["reward"]) and "#14171B" in figures._inked(
        1.0, z, METRICS["reward"])
    assert "#14171B" in figures._inked(0.0, z, METRICS["value_error"]) and not figures._inked(None, z, METRICS["kl"])
