"""The live view's data of a run: rows and events read as deltas, and the panels that they fill. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.theme import FAMILY, symbol
from labcore.catalog.knob import Value
from labcore.catalog.llm.difficulty import by_difficulty
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS, NOW, OWN, ordered
from labcore.catalog.panels import PANELS, Panel, with_switched
from labcore.catalog.right import in_run, named, right, share_of
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import Event, Step
from labcore.runs.store.thinned import LONG, stretch, thin
from labcore.runs.store.thinned import MOST as THINNED

OVERLAP = 50  # rows sent again with every refresh, so that one lost message costs nothing
MOST = 1500  # rows of a run that are drawn; a longer run has one row per interval of steps
EXACT = 500  # newest rows that are never thinned
MOST_DOTS = 1500  # dots behind a mean, over all of a run's steps
DOTTED = "episode_return"  # the metric whose single values are drawn as dots behind it
LARGE = 3  # charts that tell the story, in large; the others come below
COUNTED = frozenset({"updates", "num_tokens", "memory"})  # metrics that are axes, or belong to the process that reads
FEW = 12  # charts of the trainer's own metrics that are shown among the others
HEIGHTS = 230, 150  # of a large and of a small chart, in pixels
GOLD = "reward/gold"  # logged where the reward is that of a proxy
SHARES = ("reward", "exact/reward")  # shares of completions, if the reward is 1 for right completions and 0 for others
REPEATS = ("exact_match", "reward/shaped", "reward/verifier")  # what may be the reward under another name


@dataclass
class Feed:
    """Everything read of one run so far. `sent` is the last step that the browser was given.

    Beyond `thinned.LONG` rows the older ones are thinned, so that a feed does not grow without end.

    `dots` holds, by step, the (environment step, value) pairs behind that step's mean, if they have been read. `logged`
    are the metrics that have values; `own` are those of `REPEATS` that differed from the reward at some step. `chosen`
    are the keys of its charts, if they are not the usual ones. `called` maps the lab's metrics of a watched run to the
    trainer's names, if they differ.
    """

    spec: RunSpec
    steps: list[Step] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    sent: int = 0
    dots: dict[int, list[list[float]]] = field(default_factory=dict)
    logged: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    chosen: tuple[str, ...] | None = None
    called: Mapping[str, str] = field(default_factory=dict)

    def take(self, steps: Iterable[Step], events: Iterable[Event]) -> None:
        """Add new rows. Existing rows stay unchanged, except the last one, for which a trainer may have sent more
        metrics."""
        last = self.last_step
        new = [step for step in steps if step.step >= max(1, last)]
        if new and new[0].step == last:
            self.steps.pop()
        self.steps += new
        if len(self.steps) > LONG:
            self.steps = [*thin(self.steps[:-EXACT], stretch(self.last_step)), *self.steps[-EXACT:]]
        self.logged.update(*(step.metrics for step in new))
        self.own |= {key for key in REPEATS for step in new
                     if key in step.metrics and step.metrics[key] != step.metrics.get("reward")}
        self.events.extend(event for event in events if event.id > self.last_event)

    @property
    def last_step(self) -> int:
        return self.steps[-1].step if self.steps else 0

    @property
    def last_event(self) -> int:
        return self.events[-1].id if self.events else 0

    @property
    def stride(self) -> int:
        """The length in steps of the intervals that are drawn as one row: a power of two, as in `thinned`."""
        few = MOST if self.last_step < LONG else THINNED // 2  # of a long run with a row for each step more are kept
        return 1 if len(self.steps) <= few else stretch(self.last_step, MOST)

    def until(self, at: int | None) -> list[Step]:
        """The steps up to step `at`, by default all of them."""
        return self.steps if at is None else self.steps[:bisect_right(self.steps, at, key=lambda step: step.step)]

    def rows(self, after: int) -> list[list[Any]]:
        """[step, tokens or environment steps, seconds, metrics] of the steps after `after`, one per interval, and
        their dots if any. A metric that the last row of an interval lacks has its last value there."""
        keys = self._drawn
        beyond = self.steps[bisect_right(self.steps, after, key=lambda step: step.step):]
        return [[*self._row(step, keys), *([self._dots(step.step)] if step.step in self.dots else [])]
                for step in thin(beyond, self.stride)]

    def behind(self) -> int:
        """The step after which the next refresh sends rows again: the end of an interval."""
        back = max(0, self.sent - OVERLAP * self.stride)
        return back - back % self.stride

    def root(self, parent: Feed | None) -> list[Any] | None:
        """The row of the parent at which this fork begins; None if it is no fork, or begins before the first row."""
        if parent is None or self.spec.parent is None:
            return None
        place = self.spec.parent[1]
        found = parent.steps[:bisect_right(parent.steps, place, key=lambda step: step.step)][-1:]
        near = found and place - found[0].step < parent.stride  # of a thinned parent the row before it
        return self._row(found[0], self._drawn) if near else None

    @property
    def _drawn(self) -> set[str]:
        """The metrics of the run's charts and tiles, and what the axes count."""
        panels = charts(self.spec, [self]) if self.spec.kind_row.elsewhere else with_switched(
            self.spec.row.panels, self.spec.knobs, self.logged)
        return {key for panel in panels for key in (*PANELS[panel].lines(self.logged), *PANELS[panel].held_out)} | {
            metric.key for metric in (*tiles(self), *NOW)} | {"updates"}

    def _row(self, step: Step, keys: set[str]) -> list[Any]:
        return [step.step, step.tokens or step.env_steps, round(step.seconds, 3), {
            key: rounded(value) for key, value in step.metrics.items() if key in keys}]

    def _dots(self, step: int) -> list[list[float]]:
        """A step's dots, evenly thinned so that a run of many episodes can still be drawn."""
        found = self.dots[step]
        return found[::max(1, -(-len(found) * self.spec.steps // MOST_DOTS))]

    def value(self, key: str, first: bool = False, at: int | None = None) -> float | None:
        """The newest value of a metric, at or before step `at`; or its first."""
        steps = self.until(at)
        return next((step.metrics[key] for step in (steps if first else reversed(steps)) if key in step.metrics), None)

    @property
    def history(self) -> KnobHistory:
        """The values of all knobs at each step."""
        return KnobHistory(self.spec, self.events)

    def knobs(self, at: int | None = None) -> dict[str, Value]:
        """The knobs at present, or in the last update of step `at`."""
        return self.history.at(at)

    @property
    def by_difficulty(self) -> bool:
        """True if the first or the newest steps choose prompts by difficulty, so their values cannot be compared."""
        return any(map(by_difficulty, (self.spec.knobs, self.knobs())))

    @property
    def walks(self) -> bool:
        """True if the run samples tokens or takes environment steps; planning does neither."""
        return not self.steps or any(step.tokens or step.env_steps for step in self.steps)

    def axes(self) -> dict[str, str]:
        """The horizontal axes on which the steps have different places; the step itself is first, as default."""
        return {"step": "Steps"} | {key: name for key, name in self.spec.kind_row.axes.items()
                                    if self.walks or key not in ("tokens", "env_steps")}

    def rate(self, key: str = "") -> float | None:
        """Steps per active second over the last rows; with `key`, the growth of that metric per second."""
        recent = self.steps[-20:]
        if len(recent) == 1 and recent[0].step == 1:  # from the start of the run
            recent.insert(0, Step(0, 0, 0, 0.0, {key: 0.0}))
        if len(recent) < 2 or recent[-1].seconds <= recent[0].seconds:
            return None
        first, last = (step.metrics.get(key, step.step) for step in (recent[0], recent[-1]))
        return (last - first) / (recent[-1].seconds - recent[0].seconds)


def rounded(value: float) -> float:
    """A number with the digits that are sent: more than are ever shown."""
    return float(f"{value:.6g}")


def charts(spec: RunSpec, feeds: Iterable[Feed]) -> list[str]:
    """The keys of a run's charts, most telling first: without charts that would repeat the reward, or show groups
    of one completion. A watched run has only charts with data."""
    feeds = list(feeds)
    if feeds and feeds[0].chosen is not None:
        return list(feeds[0].chosen)
    logged = set().union(*(feed.logged for feed in feeds))
    shown = with_switched(spec.row.charts(spec.task_row), spec.knobs, logged)
    twice = "reward" in shown and not any("exact_match" in feed.own for feed in feeds) and not _beside(feeds)
    alone = spec.knobs.get("group_size") == 1
    found = [key for key in shown if not (twice and key == "exact_match")
             and not (alone and PANELS[key].groups and logged.isdisjoint(PANELS[key].metrics))]
    return among(found, logged) if spec.kind_row.elsewhere else found


def among(shown: Sequence[str], logged: Collection[str]) -> list[str]:
    """Return the charts that have values, the lab's own first. If there are many of the trainer's own metrics, only as
    many as fill the large charts are included."""
    drawn = {key: {*PANELS[key].lines(logged), *PANELS[key].held_out} for key in shown}
    there = [key for key in shown if drawn[key] & {*logged}]
    foreign = [key for key in there if key.startswith(OWN)]
    alone = ordered({*logged} - set[str]().union(*drawn.values()) - COUNTED)  # of no chart of the lab
    known = [*(key for key in there if not key.startswith(OWN)), *alone]
    return [*known, *(foreign if len(foreign) <= FEW else foreign[:max(0, LARGE - len(known))])]


def headline(feed: Feed, count: int = 4) -> list[Metric]:
    """The first number of each of the first charts; beside the reward of a proxy also the gold reward."""
    found = [_named(METRICS[_first(PANELS[key], feed)], [feed]) for key in charts(feed.spec, [feed])[:count]]
    places = [place for place, metric in enumerate(found, 1) if metric.key == "reward" and GOLD in feed.logged]
    for place in places:
        found.insert(place, METRICS[GOLD])
    return found[:count]


def _first(panel: Panel, feed: Feed) -> str:
    """Return the metric that gives a chart its number; for a watched run, the first metric with values."""
    there = [key for key in panel.lines(feed.logged) if key in feed.logged] if feed.spec.kind_row.elsewhere else []
    return (there or panel.metrics)[0]


def tiles(feed: Feed) -> list[Metric]:
    """The numbers above the charts: the headline, and how fast the run gathers experience if it does."""
    kind = feed.spec.kind_row
    pace = METRICS[kind.speed]
    paced = pace.key in feed.logged if kind.elsewhere else feed.walks
    return [*headline(feed), *([replace(pace, unit=kind.speed_unit or pace.unit)] if paced else [])]


def _named(metric: Metric, feeds: Iterable[Feed]) -> Metric:
    """The metric under the name that it has in these runs. Right completions are named after the verifier's check, and
    so is a reward that is their share; the reward of a proxy is called so.
    """
    feeds = list(feeds)
    if not any(feed.steps for feed in feeds) and len({feed.spec.task for feed in feeds}) == 1:  # no row yet
        spec = feeds[0].spec
        return in_run(metric.key, spec.row, spec.task_row, spec.knobs)
    exact = named("exact_match", _check(feeds))
    if metric.key == exact.key:
        return exact
    if metric.key == "reward" and any(GOLD in feed.logged for feed in feeds):
        return replace(metric, label="Proxy reward", short="proxy")
    if metric.key not in SHARES or not _is_share(feeds):
        return metric
    beside = metric.key == "reward" and any("held_out/accuracy" in feed.logged for feed in feeds)
    return replace(share_of(exact, metric), short="training" if beside else metric.short)


def _is_share(feeds: Collection[Feed]) -> bool:
    """True if the chart of the reward shows the share of right completions: the rewards equal that share, and
    no reward of another kind is drawn beside them. A fork that has no step yet does as its parents do."""
    begun = [feed for feed in feeds if feed.steps]
    return bool(begun) and all("exact_match" in feed.logged - feed.own for feed in begun) and not _beside(begun)


def _beside(feeds: Iterable[Feed]) -> set[str]:
    """The metrics, other than the reward, that these runs log in the unit of the reward."""
    lines = {*PANELS["reward"].metrics} - {*SHARES, "reward_std"}
    return {key for feed in feeds for key in lines & feed.logged - ({*REPEATS} - feed.own)}


def _check(feeds: Iterable[Feed]) -> str:
    """The check that a right completion has passed; empty where it differs from run to run."""
    found = {right(feed.spec.task_row, feed.spec.knobs) for feed in feeds}
    return found.pop() if len(found) == 1 else ""


def panels(spec: RunSpec, feeds: Iterable[Feed], ended: bool) -> list[dict[str, Any]]:
    """The charts of a run, most telling first, each with the lines that have values of their own.

    A chart without values keeps all its lines while the run is running and disappears when the run ends. For a watched
    run it is never shown.
    """
    feeds = list(feeds)
    logged, own = (set().union(*(getattr(feed, name) for feed in feeds)) for name in ("logged", "own"))
    there = logged - ({*REPEATS} - own - {"exact_match"})
    begun = any(feed.steps for feed in feeds)
    keys = charts(spec, feeds)
    drawn = {key: [name for name in (*PANELS[key].lines(logged), *_held_out(key, _is_share(feeds))) if name in there]
             for key in keys}
    shown = [(PANELS[key], names or _of_kind(PANELS[key], spec.kind)) for key, names in drawn.items()
             if names or not ((ended or spec.kind_row.elsewhere) and begun)]
    return [_panel(panel, _in_one_unit([_named(METRICS[name], feeds) for name in names]), place < LARGE)
            | {"called": _called(names, feeds[0])} for place, (panel, names) in enumerate(shown)]


def _in_one_unit(metrics: list[Metric]) -> list[Metric]:
    """The metrics of a chart. If the reward is a share of completions, its standard deviation is left out: it is not a
    share, and follows from this one."""
    of_reward = metrics[0].key == "reward" and metrics[0].share
    return [metric for metric in metrics if metric.share] if of_reward else metrics


def _called(names: Iterable[str], feed: Feed) -> str:
    """Return the trainer's names for the metrics of a chart; empty for the lab's own runs."""
    if not feed.spec.kind_row.elsewhere:
        return ""
    tool = feed.spec.tool or "the trainer"
    known = [feed.called.get(name, name) for name in names if not name.startswith(OWN)]
    return f"{tool}: {', '.join(known)}" if known else f"only in {tool}"


def _held_out(key: str, is_share: bool) -> tuple[str, ...]:
    """The metrics of held-out rows in a chart: in that of a reward which is the share of right completions, theirs."""
    return PANELS["exact_match" if is_share and key == "reward" else key].held_out


def _of_kind(panel: Panel, kind: str) -> list[str]:
    """The metrics of a chart that a run of this kind may log."""
    return [key for key in panel.metrics if METRICS[key].kind in ("", kind)]


def _panel(panel: Panel, metrics: list[Metric], large: bool) -> dict[str, Any]:
    first, peers = metrics[0], panel.peers and len(metrics) > 1
    about = f"{first.help} {first.healthy}".strip().replace('"', "'")
    return {"key": panel.key, "title": first.label if panel.key in ("reward", "exact_match") else panel.title,
            "symbol": "" if peers else symbol(first.symbol), "unit": first.page_unit, "large": large,
            "height": HEIGHTS[not large], "help": f"{first.label}: {about}" if peers else about, "peers": peers,
            "scale": "small rate" if panel.small else first.scale, "colour": FAMILY[panel.family],
            "dots": first.key == DOTTED,
            "metrics": [{"key": metric.key, "label": metric.label, "short": metric.line, "unit": metric.page_unit,
                         "digits": metric.digits, "share": metric.share} for metric in metrics]}
