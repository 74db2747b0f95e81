"""Scripts of our own: published once under their hash, such that browsers keep them; loaded before they are needed."""

import os
import re
import time
from collections import defaultdict
from pathlib import Path

import pytest

from app import theme
from app.components import component
from app.components.compare_chart import CHART
from app.components.plotly import plotly_url
from labcore.errors import LabError
from tests.app.seeding import html


@pytest.fixture
def static(tmp_path, monkeypatch):
    monkeypatch.setattr(component, "STATIC", tmp_path / "static")
    return tmp_path / "static"


def test_a_script_has_another_name_when_it_is_another_one(static):
    names = [component.published("chart", text) for text in (b"one", b"two", b"one")]
    assert names[0] == names[2] != names[1]
    assert {(static / name).read_bytes() for name in names} == {b"one", b"two"} and len([*static.iterdir()]) == 2


def test_a_browser_keeps_it_for_weeks(static):
    """For a tenth of its age, since nobody says for how long."""
    served = static / component.published("chart", b"one")
    assert time.time() - served.stat().st_mtime > 10 * 30 * 86_400
    assert os.access(served, os.R_OK) and served.stat().st_mode & 0o777 == 0o644


def test_an_old_script_goes_when_a_new_one_comes_but_not_at_once(static, monkeypatch):
    first = static / component.published("chart", b"one")
    component.published("chart", b"two")
    assert first.exists(), "another server may still serve it"
    monkeypatch.setattr(component, "KEPT_SECONDS", -1)
    component.published("other", b"three")
    assert first.exists(), "it is another component's"
    component.published("chart", b"four")
    assert not first.exists()


def test_a_folder_that_cannot_be_written_to_is_named_with_what_to_do(static, monkeypatch):
    def refused(path, fill):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(component.atomic, "write_file", refused)
    with pytest.raises(LabError, match=rf"cannot write its scripts to {static}: .* virtual environment of your own\.$"):
        component.published("chart", b"one")


def test_pages_with_charts_load_their_script_and_plotly_ahead(page):
    for name, script in (("compare", CHART.script), ("llm", "live_chart-")):
        text = html(page(name))
        assert f"app/static/{script}" in text and plotly_url() in text
    assert (component.STATIC / plotly_url().rpartition("/")[2]).stat().st_size > 1_000_000


def test_no_style_asks_for_a_part_of_a_class_s_name_beside_charts_that_grow():
    """A browser would style all that is below an element anew at each write of a class: of a live page, five times a
    refresh. Foundations have nothing that grows."""
    styles = {path.name: path.read_text() for path in component.HERE.rglob("*.css") if path.name != "foundations.css"}
    assert [name for name, style in {"theme": theme.CSS, **styles}.items() if "[class" in style] == []


def test_no_class_is_styled_by_itself_in_two_places():
    """All styles are in one document: on a page those of its components, in a shared file those of all kinds."""
    root, found = Path(theme.__file__).parent, defaultdict(set)
    for path in (*root.rglob("*.css"), *root.rglob("*.py")):
        text = path.read_text("utf-8")
        for style in [text] if path.suffix == ".css" else re.findall(r"<style>(.*?)</style>", text, re.DOTALL):
            for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", style):
                for name in (each.strip() for each in selectors.split(",")):
                    if re.fullmatch(r"\.rl-[\w-]+", name):
                        found[name].add((path.parent.name, rule))
    assert len(found) > 100
    twice = {name: rules for name, rules in found.items() if len({rule for _, rule in rules}) > 1
             and len({place for place, _ in rules}) > 1}
    assert not twice
