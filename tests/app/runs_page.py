"""How tests read the page Runs, and press on it."""

from app.runs.state import PICKED
from labcore.runs.imports import imported
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from tests.app.seeding import ran


def rows(test) -> list[str]:
    """The ids of the runs in all tables, from top to bottom: of those of the titles that are shown."""
    store = Store()
    ids = {title(run): run.id for run in (*store.runs(), *store.trashed())}
    ids |= {about.label: about.id for about in (*imported.listed(store), *imported.trashed(store))}
    return [ids[run] for element in test.dataframe for run in element.value["run"]]


def said(test) -> str:
    return " ".join(element.value for element in (*test.markdown, *test.caption, *test.warning))


def press(test, key: str):
    test.button(key=key).click()
    return ran(test)


def select(test, *run_ids: str):
    """Select rows, as a click on their boxes does."""
    test.session_state[PICKED] = list(run_ids)
    return ran(test)


def labels(test) -> list[str]:
    return [*(button.label for button in test.button), *(link.proto.label for link in test.get("page_link"))]
