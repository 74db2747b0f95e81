"""Draw the charts of runs for print: SVG and PNG of one column and of two, each with a caption that lists the settings.

Lines differ by dash and marker as well as by colour, so that they can be told apart in greyscale. Text stays text in an
SVG. Import this module only where figures are drawn, because its import of matplotlib takes most of a second.
"""

from __future__ import annotations

import io
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from labcore.analysis.compare import statistics
from labcore.analysis.compare.curves import aligned, smoothed
from labcore.analysis.compare.groups import Group, groups
from labcore.analysis.compare.loading import Reader
from labcore.analysis.estimate import FEWEST
from labcore.catalog.knob import shown
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS, Panel, with_switched
from labcore.errors import LabError, cut, one_line, os_reason
from labcore.runs.files import atomic
from labcore.runs.files.paths import path_of
from labcore.runs.spec.model_names import without_folders
from labcore.runs.spec.run_spec import RunSpec, knobs_of
from labcore.runs.steering import unusual_knobs
from labcore.runs.store.store import Store
from labcore.runs.traces import AXES

# Width and height in inches: one column and two of the usual templates (NeurIPS, ICML, IEEE).
SIZES = {"one-column": (3.3, 2.1), "two-columns": (6.9, 2.6)}
FORMATS = ("svg", "png")
DPI = 300
LETTERS, BELOW = 15.0, 0.6  # letters of a label in an inch; inches below the axes and above them
MOST_RUNS = 60
# Okabe–Ito, those first that differ most in lightness; then what tells lines apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (7, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MARKED = 7  # markers on a line
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.grid.axis": "y", "grid.linewidth": 0.4, "grid.color": "#D9DEE4", "axes.axisbelow": True,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "lines.linewidth": 1.2, "svg.fonttype": "none",
    "svg.hashsalt": "rl-visual-lab", "legend.frameon": False, "legend.handlelength": 2.6}
_SETTINGS = threading.Lock()  # matplotlib's settings are the process's


@dataclass(frozen=True)
class Line:
    """A curve: (N,) each; `low` and `high` are its band over seeds, `raw` the values behind a smoothed one."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    raw: np.ndarray | None = None


@dataclass(frozen=True)
class Chart:
    """One figure: the metric on its axis, whether its shares are `small`, its lines, and the changes of knobs as (x,
    text)."""

    name: str
    metric: Metric
    small: bool
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...]
    caption: str


def write(store: Store, run_ids: Sequence[str], folder: Path | str, axis: str = "step",
          smoothing: float = 0.0) -> list[Path]:
    """Write every chart of the runs into `folder`, and `captions.md`. Returns the files.

    Of one run a figure has all lines of its chart; of several the chart's first metric, a line for each setting, with
    the band over its seeds. Raises LabError if there is no such run or nothing to draw, the runs do not have the axis,
    or the folder cannot be written.
    """
    charts, settings = charts_of(store, run_ids, axis, smoothing)
    folder = path_of(folder)
    if folder.exists() and not folder.is_dir():
        raise LabError(f"{folder} is a file: write the figures to a folder.")
    try:
        atomic.write_into(folder, lambda new: fill(new, charts, settings, axis))
    except OSError as error:
        raise LabError(f"The figures cannot be written to {folder} ({os_reason(error)}): choose another "
                       "folder.") from error
    return [folder / name for name in (*_files(charts), "captions.md")]


def charts_of(store: Store, run_ids: Sequence[str], axis: str = "step", smoothing: float = 0.0,
              ) -> tuple[list[Chart], str]:
    """The charts as `write` draws them, without those that have no values, and the settings as Markdown."""
    if not 0 <= smoothing < 1:
        raise LabError(f"The smoothing is {smoothing:g}: use a number from 0 up to, but not including, 1.")
    if len(run_ids) > MOST_RUNS:
        raise LabError(f"A figure holds up to {MOST_RUNS} runs, and these are {len(run_ids)}: name fewer.")
    rows = [store.run(run_id) for run_id in dict.fromkeys(run_ids)]
    traces = Reader(store).traces(rows, list(METRICS))
    if not any(axis in trace.axes for trace in traces):
        raise LabError(f"None of these runs records {AXES[axis]}: choose another axis.")
    found = groups(traces, _words)
    spec = rows[0].spec
    logged = {key for trace in traces for key, column in trace.metrics.items() if np.isfinite(column).any()}
    keys = dict.fromkeys(spec.row.charts(spec.task_row))
    charts = [_chart(PANELS[key], found, logged, axis, smoothing) for key in with_switched(
        tuple(keys), spec.knobs, logged)]
    drawn = [chart for chart in charts if chart.lines]
    if not drawn:
        raise LabError("These runs have no values to draw yet: export the figures after their first step.")
    return drawn, settings_of(found)


def _words(key: str, value: Any, spec: RunSpec) -> str:
    """A setting in a label: "β 0.2"."""
    name = next((knob.name for knob in knobs_of(spec.row, spec.task_row) if knob.key == key), key)
    return f"{name} {_plain(value)}"


# ---- from runs to lines -------------------------------------------------------------------------------------------


def _chart(panel: Panel, found: Sequence[Group], logged: set[str], axis: str, smoothing: float) -> Chart:
    alone = len(found) == 1
    keys = [key for key in panel.lines(logged) if key in logged][:None if alone else 1]
    metric = METRICS[keys[0] if keys else panel.metrics[0]]
    labels = {key: METRICS[key].line for key in keys} if alone and len(keys) > 1 else {}
    lines = [line for group in found for key in keys
             if (line := _line(group, labels.get(key, group.label), key, axis, smoothing))]
    marks = _marks(found[0], axis) if alone else ()
    return Chart(panel.key.replace("_", "-"), metric, panel.small, tuple(lines), marks,
                 _caption(metric, found, axis, smoothing))


def _line(group: Group, label: str, key: str, axis: str, smoothing: float) -> Line | None:
    """A group's mean, from three seeds on with its band, or the curve of a single run; None without values."""
    if len(group.traces) == 1:
        x, raw, smooth = smoothed(group.traces[0], key, axis, smoothing)
        return Line(label, x, smooth, raw=raw if smoothing else None) if x.size else None
    places, values = aligned(group.traces, key, axis)
    middle, low, high = statistics.band(values)
    kept = np.isfinite(middle)
    if not kept.any():
        return None
    return Line(label, places[kept], middle[kept], *(edge if edge is None else edge[kept] for edge in (low, high)))


def _marks(group: Group, axis: str) -> tuple[tuple[float, str], ...]:
    """The changes of knobs, which are the same for all runs of a group."""
    trace = group.traces[0]
    if trace.spec is None or axis not in trace.axes:
        return ()
    steps, places = trace.axes["step"], trace.axes[axis]
    at = [max(int(np.searchsorted(steps, step, side="right")) - 1, 0) for step, _ in trace.moves]
    return tuple((float(places[place]), _words(key, value, trace.spec))
                 for place, ((_, key), value) in zip(at, trace.moves.items(), strict=True))


def _caption(metric: Metric, found: Sequence[Group], axis: str, smoothing: float) -> str:
    """The caption of a figure: its metric, its axis, and the settings of each line."""
    most = max(len(group.traces) for group in found)
    parts = [f"{metric.axis} over {AXES[axis]}."]
    if most > 1:
        bands = "; bands: 95 % bootstrap interval of the mean" if most >= FEWEST else ""
        parts.append(f"Lines: mean over seeds{bands}.")
    if smoothing:
        parts.append(f"Smoothed by an exponential average of weight {smoothing:g}"
                     f"{' where a line is one run' if most > 1 else ''}; the values themselves are faint.")
    return " ".join([*parts, *(_setting(group) for group in found)])


def _setting(group: Group) -> str:
    """The runs of a line, the settings that are not at their defaults, and what was changed mid-run."""
    trace = group.traces[0]
    spec = trace.spec
    assert spec is not None, "figures are of runs of the lab"
    seeds = ", ".join(map(str, group.seeds))
    own = [_words(knob.key, spec.knobs[knob.key], spec) for knob in unusual_knobs(spec)]
    changed = [f"{_words(key, value, spec)} from step {step + 1:,}" for (step, key), value in trace.moves.items()]
    parts = [f"task {spec.task}", f"model {_model(spec)}" if spec.model else "",
             f"seed{'s' * (len(group.traces) > 1)} {seeds}", f"{spec.steps:,} steps",
             *(own or ["all other knobs at their defaults"]), *changed]
    return f"{group.label}: {', '.join(filter(None, parts))}."


def _model(spec: RunSpec) -> str:
    """The model's name, without the folder that it lies in."""
    short = without_folders(spec.model)
    return Path(short).name if Path(short).is_absolute() else short


def settings_of(found: Sequence[Group]) -> str:
    """All knobs of each line as a Markdown table."""
    specs = [group.traces[0].spec for group in found]
    knobs = {knob.key: knob for spec in specs if spec for knob in spec.declared}
    head = [f"| Setting | {' | '.join(group.label for group in found)} |", f"|---{'|---' * len(found)}|"]
    return "\n".join([*head, *(
        f"| {knob.title} (`{key}`) | {' | '.join(_cell(spec.knobs.get(key)) if spec else '' for spec in specs)} |"
        for key, knob in knobs.items())])


def _cell(value: Any) -> str:
    return "–" if value in (None, "") else _plain(value).replace("|", "\\|")


def _plain(value: Any) -> str:
    """A value in one line, without the folders of this machine."""
    text = without_folders(shown(value))
    return one_line(Path(text).name if Path(text).is_absolute() else text)


# ---- from lines to files ------------------------------------------------------------------------------------------


def _files(charts: Iterable[Chart]) -> list[str]:
    return [f"{size}/{chart.name}.{form}" for chart in charts for size in SIZES for form in FORMATS]


@contextmanager
def _style() -> Iterator[None]:
    """Within it matplotlib draws in the lab's style alone, whatever the user's own settings are."""
    with _SETTINGS, style.context(STYLE, after_reset=True):
        yield


def fill(folder: Path, charts: Sequence[Chart], settings: str, axis: str) -> None:
    """Write the figures and their captions into `folder`."""
    for size in SIZES:
        (folder / size).mkdir(parents=True, exist_ok=True)
    with _style():
        for chart in charts:
            for size, inches in SIZES.items():
                figure = drawn(chart, inches, axis)
                for form in FORMATS:
                    figure.savefig(folder / size / f"{chart.name}.{form}", dpi=DPI, metadata=_metadata(chart, form))
    (folder / "captions.md").write_text(captions(charts, settings), encoding="utf-8")


def captions(charts: Iterable[Chart], settings: str) -> str:
    """The captions of all figures and the settings, as Markdown."""
    return "\n\n".join([*(f"**{chart.name}.** {chart.caption}" for chart in charts), "## Settings", settings]) + "\n"


def _metadata(chart: Chart, form: str) -> dict[str, str | None]:
    """Title and caption inside the file; no date, so that the same runs give the same bytes."""
    about: dict[str, str | None] = {"Title": chart.metric.axis, "Description": chart.caption}
    return about | ({"Creator": "RL Visual Lab", "Date": None} if form == "svg" else {"Software": "RL Visual Lab"})


def drawn(chart: Chart, inches: tuple[float, float], axis: str) -> Figure:
    """The chart as a figure of that width and height."""
    figure = Figure(figsize=inches, layout="constrained")
    axes = figure.add_subplot()
    for place, line in enumerate(chart.lines):
        _draw(axes, line, place)
    _scale(axes, chart)
    end = max(line.x[-1] for line in chart.lines)
    for x, text in chart.marks:
        axes.axvline(x, color="#69727D", linewidth=0.6, linestyle=":", zorder=1)
        axes.annotate(_shown(text), (x, 1.0), (-2 if x > 0.7 * end else 2, 0), xycoords=axes.get_xaxis_transform(),
                      textcoords="offset points", fontsize=6, color="#444444", va="bottom", parse_math=False,
                      ha="right" if x > 0.7 * end else "left")
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel(textwrap.fill(chart.metric.axis, max(12, int(LETTERS * (inches[1] - BELOW)))))
    axes.margins(x=0.01)
    if end >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 50k
    if len(chart.lines) > 1:
        longest = max(len(_shown(line.label)) for line in chart.lines) + 8  # letters, with its piece of line
        legend = figure.legend(loc="outside lower center",
                               ncols=max(1, min(len(chart.lines), int(inches[0] * 16 / longest))))
        for label in legend.get_texts():
            label.set_parse_math(False)
    return figure


def _shown(text: str) -> str:
    """A text of the user's in a figure: one line that is not too long, without characters that XML cannot hold."""
    return cut(one_line(text))


def svg(chart: Chart, inches: tuple[float, float], axis: str = "step") -> str:
    """The chart as SVG, to stand within HTML."""
    with _style():
        drawn(chart, inches, axis).savefig(file := io.StringIO(), format="svg", metadata=_metadata(chart, "svg"))
    return file.getvalue().partition("<svg")[1] + file.getvalue().partition("<svg")[2]


def _draw(axes: Axes, line: Line, place: int) -> None:
    colour = COLOURS[place % len(COLOURS)]
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    if line.raw is not None:
        axes.plot(line.x, line.raw, color=colour, alpha=0.25, linewidth=0.7)
    every = max(1, len(line.x) // MARKED)
    axes.plot(line.x, line.y, color=colour, linestyle=DASHES[place % len(DASHES)], label=_shown(line.label),
              marker=MARKERS[place % len(MARKERS)], markevery=(place * every // 4, every), markersize=3.2,
              markerfacecolor="white", markeredgewidth=0.8)


def _scale(axes: Axes, chart: Chart) -> None:
    """A rate from 0 to 1; values over decades on a symmetric logarithm; else from 0 where nothing is below it."""
    values = np.concatenate([line.y for line in chart.lines])
    low, high = float(values.min()), float(values.max())
    sizes = np.abs(values[np.abs(values) > 1e-4])
    if chart.metric.scale == "rate" and not chart.small:
        axes.set_ylim(-0.03, 1.03)
    elif chart.metric.scale == "symlog" and sizes.size > 9 and high > 100 * np.quantile(sizes, 0.1):
        axes.set_yscale("symlog", linthresh=1e-3)
    elif chart.small:
        axes.set_ylim(-0.0006, max(0.02, 1.06 * high))
    elif 0 <= low < 0.6 * high:
        axes.set_ylim(bottom=0)
