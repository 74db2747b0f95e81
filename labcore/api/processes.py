"""The processes behind the Python API: the store of the present home, runs in this process and beside it, jobs."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from labcore.errors import LabError
from labcore.runs import jobs, titles
from labcore.runs.spec.session import Record
from labcore.runs.store.dialects import store_url
from labcore.runs.store.store import Store
from labcore.runs.summary import headline
from labcore.workers.launcher import Launcher

with warnings.catch_warnings():  # a notebook without ipywidgets has a bar of text, which needs no warning
    warnings.filterwarnings("ignore", "IProgress not found")
    from tqdm.auto import tqdm

POLL_SECONDS = 0.2
DRAW_SECONDS = 2.0  # between two drawings of a run in a notebook


class Drawn(Protocol):
    """A run as a notebook draws it."""

    id: str

    def _repr_html_(self) -> str: ...


_stores: dict[str, Store] = {}
_launchers: dict[str, Launcher] = {}


def store() -> Store:
    """The store of the lab's present home: a script may change RL_LAB_HOME between two calls. Runs whose process is
    gone, such as a notebook's that was restarted, are marked as interrupted, so that nobody waits for them."""
    if (url := store_url()) not in _stores:
        _stores[url] = Store(url)
    _stores[url].reconcile()
    return _stores[url]


def launcher() -> Launcher:
    """The launcher that starts runs and jobs in their own processes and ends with this process."""
    there = store()
    if there.url not in _launchers:
        _launchers[there.url] = Launcher(there)
    return _launchers[there.url]


def close() -> None:
    """Stop the runs in the background that this process started. They save checkpoints and can be resumed.

    The end of the process does the same.
    """
    while _launchers:
        _launchers.popitem()[1].close()


def drive(run: Drawn, progress: bool) -> None:
    """Train the run here, in this process."""
    from labcore.workers import worker  # imports torch, which nothing else here needs

    with shown(run, progress) as show:
        def on_record(run_id: str, record: Record, seconds: float) -> None:
            if run_id == run.id:  # not the SFT run that makes its base model
                show(record.step, record.metrics)
        worker.drive(store(), run.id, on_record=on_record)


@contextmanager
def shown(run: Drawn, progress: bool) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """A context that shows a progress bar with the headline metric and, in a notebook, the curves of the run as it
    trains.

    Yields the function that is told the step and its metrics.
    """
    row = store().run(run.id)
    metric, place, drawn = headline(row.spec), output(run) if progress else None, time.monotonic()
    with tqdm(total=row.spec.steps, initial=row.step, desc=titles.title(row), unit="step", disable=not progress) as bar:
        def show(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal drawn
            if metric in metrics:
                bar.set_postfix({metric: f"{metrics[metric]:z.3g}"}, refresh=False)
            bar.update(step - bar.n)
            if place and time.monotonic() - drawn > DRAW_SECONDS:
                place.update(run)
                drawn = time.monotonic()
        yield show
    if place:
        place.update(run)


def output(run: Drawn) -> Any:
    """The place of a notebook's cell in which the run is drawn; None outside a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):  # a terminal
        return None
    return sys.modules["IPython.display"].display(run, display_id=True)


def computed(spec: jobs.Spec) -> dict[str, Any]:
    """The result of a job, which a process of its own computes. Raises LabError with the job's error."""
    job = launcher().compute(spec)
    while (found := jobs.outcome(job)) is None:
        time.sleep(POLL_SECONDS)
        launcher().compute(spec)
    if found.result is None:
        raise LabError(found.error)
    return found.result
