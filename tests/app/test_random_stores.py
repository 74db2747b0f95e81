"""Every page holds for every mixture of runs: no exception, whatever is queued, live, ended or deleted."""

import pytest

from app.compare.place import VIEWS
from app.compare.sweep.large import view as at_size
from labcore.analysis.compare.best import CRITERIA
from labcore.analysis.lessons import progress
from labcore.analysis.studies.rows import STUDIES
from labcore.catalog.metrics import METRICS
from labcore.runs.traces import AXES
from tests.app.random_stores import RandomStore
from tests.app.seeding import ran

FEW = 10  # links that `make test` tries in each store


def of_run(made: RandomStore) -> list[tuple[str, dict[str, str]]]:
    """Every run on its own page, on any of its tabs, and its kind's page without one."""
    found = [(kind, {}) for kind in ("llm", "exact", "maze", "cartpole")]
    for run in made.store.runs():
        tab = made.rng.choice(["Equation", "Events", "Data", "Export", "Samples", "Surrogate", "Value", "Next actions"])
        found.append((run.spec.kind, {"run": run.id, "tab": tab, "view": made.rng.choice(["student", "researcher"])}))
        found.append(("surrogate", {"run": run.id}))
        found.append(("playground", {"runs": run.id, "view": made.rng.choice(["answers", "vote"])}))
    return [*found, *(("llm", {"run": name}) for name in made.some(2))]


def of_many(made: RandomStore) -> list[tuple[str, dict[str, str]]]:
    """Compare in each of its views, of every sweep and of runs by chance; lists of all runs."""
    rng = made.rng
    found = [("home", {}), ("compare", {}), ("lessons", {}), ("studies", {}), ("runs", {}),
             ("runs", {"view": "deleted"}), ("runs", {"group": rng.choice(["algorithm", "sweep", "state"])})]
    for which in [*({"sweep": name} for name in made.sweeps), {"runs": ",".join(made.some())}]:
        for view in VIEWS:
            more = {"metric": rng.choice([*METRICS, "reward", "kl"]), "by": rng.choice(CRITERIA),
                    "x": rng.choice([*AXES]), "baseline": rng.choice(made.some()), "traces": "1"}
            chosen = {key: value for key, value in more.items() if rng.random() < 0.25}
            found.append(("compare", {**which, "view": view, **chosen}))
    return [*found, *(("lessons", {"lesson": name}) for name in progress.attempts()),
            *(("studies", {"study": rng.choice([*STUDIES])}) for _ in range(2))]


def look_at(page, made: RandomStore, links: list[tuple[str, dict[str, str]]]) -> None:
    """Open each of them; now and then the store moves on, and the page that was open before is drawn once more."""
    before = None
    for name, query in links:
        try:
            shown = page(name, **query)
            if before and made.rng.random() < 0.1:
                made.move_on()
                ran(before)
            before = shown
        except AssertionError as error:
            states = {run.id: (run.state, run.step) for run in made.store.runs()}
            raise AssertionError(f"{name} {query}: {error} {states}") from error


@pytest.mark.parametrize("seed", range(1))
def test_a_few_links_of_any_store_open(seed, page, lab):
    made = RandomStore(lab.store, seed)
    links = [*of_run(made), *of_many(made)]
    look_at(page, made, made.rng.sample(links, min(FEW, len(links))))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 124))
def test_every_link_of_any_store_opens(seed, page, lab, monkeypatch):
    made = RandomStore(lab.store, seed)
    if seed % 4 == 0:
        monkeypatch.setattr(at_size, "LARGE", 3)  # and so the view of large sweeps
    look_at(page, made, [*of_run(made), *of_many(made)])
