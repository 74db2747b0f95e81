"""Figures for print: their size, their lines in greyscale, their numbers and their captions."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from labcore.analysis.compare.groups import groups
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.exports import figures
from labcore.runs.store.store import Store
from labcore.runs.traces import Trace
from labcore.workers.worker import drive
from tests.runs import fake


def ran(store: Store, steps: int = 6, seed: int = 0, **knobs) -> str:
    spec = replace(fake.grpo(steps, **knobs), seed=seed)
    run_id = store.create(spec)
    drive(store, run_id, start=fake.start)
    return run_id


def chart(charts: list[figures.Chart], name: str) -> figures.Chart:
    return next(each for each in charts if each.name == name)


def test_files_are_of_print_size_with_text_as_text_and_equal_bytes_each_time(store, tmp_path, monkeypatch):
    run_id = ran(store)
    monkeypatch.setattr(figures, "with_switched", lambda *_: ("kl",))  # one chart, since each takes half a second
    files = figures.write(store, [run_id], tmp_path / "a")
    assert all(file.exists() for file in files) and {file.suffix for file in files} == {".svg", ".png", ".md"}
    for size, (width, height) in figures.SIZES.items():
        svg = (tmp_path / "a" / size / "kl.svg").read_text()
        found = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
        assert [float(each) / 72 for each in found.groups()] == pytest.approx([width, height])
        assert re.search(r"<text[^>]*>KL to the reference", svg)
        assert Image.open(tmp_path / "a" / size / "kl.png").width == round(width * figures.DPI)
    again = figures.write(store, [run_id], tmp_path / "b")
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]


def test_the_lines_have_the_numbers_of_the_rows(store):
    run_id = ran(store)
    charts, _ = figures.charts_of(store, [run_id])
    [line] = chart(charts, "kl").lines
    steps = store.steps_after(run_id)
    assert line.x.tolist() == [step.step for step in steps]
    assert line.y.tolist() == [step.metrics["kl"] for step in steps]


def test_lines_differ_without_their_colours_and_seeds_have_a_band(store):
    runs = [ran(store, seed=seed) for seed in range(3)] + [ran(store, beta=beta) for beta in (0.1, 0.2, 0.4)]
    charts, _ = figures.charts_of(store, runs)
    found = chart(charts, "reward")
    mean, *single = found.lines
    rows = np.array([[step.metrics["reward"] for step in store.steps_after(run)] for run in runs[:3]])
    assert mean.y == pytest.approx(rows.mean(0)) and (mean.low <= mean.y).all() and (mean.y <= mean.high).all()
    assert [line.low for line in single] == [None] * 3
    with figures._style():
        axes = figures.drawn(found, figures.SIZES["one-column"], "step").axes[0]
    looks = [(line._dash_pattern, line.get_marker()) for line in axes.lines]
    assert len(looks) == len({str(dash) for dash, _ in looks}) == len({marker for _, marker in looks}) == 4
    assert [line.get_label() for line in axes.lines] == ["GRPO β 0.04", "GRPO β 0.1", "GRPO β 0.2", "GRPO β 0.4"]


def test_two_seeds_are_a_line_without_a_band(store):
    runs = [ran(store, seed=seed) for seed in range(2)]
    found = chart(figures.charts_of(store, runs)[0], "reward")
    [line] = found.lines
    rows = [[step.metrics["reward"] for step in store.steps_after(run)] for run in runs]
    assert line.y == pytest.approx(np.mean(rows, 0)) and line.low is line.high is None
    assert "mean over seeds." in found.caption and "seeds 0, 1" in found.caption
    third = chart(figures.charts_of(store, [*runs, ran(store, seed=2)])[0], "reward")
    assert "mean over seeds; bands: 95 %" in third.caption and third.lines[0].low is not None


def test_the_caption_says_seeds_settings_and_changes_mid_run(store):
    run_id = ran(store, beta=0.3)
    store.log(run_id, "knob", {"knob": "beta", "from": 0.3, "to": 0.1, "update": 2, "between": 0,
                               "text": "β 0.3 → 0.1"}, 3)
    other = ran(store, seed=4)
    text = figures.captions(*figures.charts_of(store, [run_id, other], axis="updates", smoothing=0.5))
    caption = next(line for line in text.splitlines() if line.startswith("**kl.**"))
    for part in ("over updates", "0.5", "β 0.3", "β 0.1 from step 3", "seed 0", "seed 4", "6 steps"):
        assert part in caption, part
    assert "| KL coefficient β (`beta`) | 0.3 | 0.04 |" in text


def test_a_caption_names_no_folder_of_this_machine(store):
    spec = replace(fake.grpo(), model="/home/planted/models/mine")
    run = Trace("a-1234", spec, "finished", {"step": np.ones(1)}, {"reward": np.ones(1)}, title="GRPO sort #1")
    [group] = groups([run])
    caption = figures._setting(group) + figures.settings_of([group])
    assert "planted" not in caption and "model mine" in caption


@pytest.mark.parametrize("text", [r"pattern ^\$\d+$ $\frac$", "a $x_$", "\x00\x0b <b>&amp;", "x" * 500])
def test_a_text_of_the_users_stays_text_and_the_file_is_xml(text):
    line = figures.Line(text, np.arange(5.0), np.arange(5.0))
    drawn = figures.Chart("reward", METRICS["reward"], False, (line, line), ((1.0, text),), figures._plain(text))
    shown = [each.text for each in ElementTree.fromstring(figures.svg(drawn, (3.3, 2.1))).iter() if each.text]
    assert shown.count(figures._shown(text)) >= 3, "twice in the legend, once at the change"


def test_the_settings_of_the_users_matplotlib_do_not_count():
    line = figures.Line("a", np.arange(5.0), np.arange(5.0))
    drawn = figures.Chart("reward", METRICS["reward"], False, (line,), (), "")
    usual = figures.svg(drawn, (3.3, 2.1))
    with matplotlib.rc_context({"axes.facecolor": "black", "text.color": "white", "xtick.direction": "in"}):
        assert figures.svg(drawn, (3.3, 2.1)) == usual and matplotlib.rcParams["axes.facecolor"] == "black"


@pytest.mark.parametrize("options, says", [
    ({"axis": "env_steps"}, "None of these runs .* environment steps"), ({"smoothing": 1.0}, "not including, 1")])
def test_what_cannot_be_drawn_is_said(store, tmp_path, options, says):
    with pytest.raises(LabError, match=says):
        figures.write(store, [ran(store)], tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()


def test_a_run_without_rows_has_nothing_to_draw(store, tmp_path):
    with pytest.raises(LabError, match="no values"):
        figures.write(store, [store.create(fake.grpo())], tmp_path / "a")
