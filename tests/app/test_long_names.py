"""A link with a name that no disk takes, or that is a path, opens its page as any link with a wrong name."""

import time

import pytest

from labcore.runs.files.paths import home, imports
from labcore.runs.store.schema import marks, runs
from labcore.runs.store.store import Store

LONG = "x" * 300


@pytest.mark.parametrize(("name", "query"), [
    ("llm", {"model": LONG}), ("llm", {"run": LONG}), ("compare", {"runs": f"imported-{LONG}"}),
    ("compare", {"batch": LONG}), ("playground", {"runs": f"base:{LONG}"}), ("playground", {"runs": f"{LONG},a\nb"})])
def test_a_link_with_a_name_that_cannot_be(page, grpo, name, query):
    imports().mkdir()  # below a folder that is not there no disk looks at the name
    page(name, **query)


@pytest.mark.parametrize(("name", "keys"), [
    ("llm", ("run", "model")), pytest.param("compare", ("runs", "sweep"), marks=pytest.mark.long),
    *(pytest.param(name, (key,), marks=pytest.mark.long) for name, key in (
        ("maze", "run"), ("playground", "runs"), ("lessons", "lesson")))])
def test_a_link_with_a_path_as_a_name_opens_its_page(page, grpo, name, keys):
    (home().parent / "victim" / "checkpoints" / "step-000000" / "policy").mkdir(parents=True, exist_ok=True)
    for hostile in ("../victim", "base:../victim", "a/../../victim@0", "..", "imported-/../../victim"):
        page(name, **dict.fromkeys(keys, hostile))


@pytest.mark.parametrize("deleted", [None, 30 * 86_400])
def test_a_page_over_a_store_with_a_run_that_is_called_like_a_path_leaves_the_neighbour_alone(page, grpo, deleted):
    victim = home().parent / f"victim-{deleted}" / "samples"
    victim.mkdir(parents=True)
    (victim / "precious").write_text("x")
    with Store()._writing() as connection:
        connection.execute(runs.update(), {"id": f"../{victim.parent.name}"})
        connection.execute(marks.insert(), {"id": f"../{victim.parent.name}",
                                            "deleted": deleted and time.time() - deleted})
    for name in ("runs", "llm", "compare"):
        shown = page(name)
        assert deleted or "which no run can have" in "".join(each.value for each in (*shown.error, *shown.markdown))
    assert (victim / "precious").read_text() == "x"
