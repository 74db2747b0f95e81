"""A lesson as a reader does it: predict, run, see the verdict; and a curve drawn by hand. In a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from labcore.runs.store.store import Store
from tests.browser.conftest import ROOT, Server, wait_for
from tests.browser.hand import grabbed
from tests.browser.test_llm_lab import SLOW, fits


@pytest.mark.long
def test_predict_run_and_see_the_verdict(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/lessons")
    page.get_by_role("button", name="How far back does one success count?").click(timeout=SLOW)
    run = page.get_by_role("button", name="Lock my prediction and run")
    expect(run).to_be_disabled(timeout=SLOW)
    assert page.url.endswith("/lessons?lesson=traces")
    page.get_by_text(re.compile("^Without traces one cell per episode, with")).click()
    expect(run).to_be_enabled(timeout=SLOW)
    store = Store(f"sqlite:///{server.home / 'lab.db'}")
    before = len(store.runs("finished"))
    run.click()
    expect(page.get_by_text(re.compile("of 6 runs finished"))).to_be_visible(timeout=SLOW)
    page.goto("about:blank")  # a page that shows five runs needs more time than they do
    wait_for(lambda: len(store.runs("finished")) >= before + 5)
    page.goto(f"{server.url}/lessons?lesson=traces")  # it is kept
    expect(page.get_by_text("The claim holds in these runs.")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Correct.")).to_be_visible()
    expect(page.locator(".rl-table").first).to_contain_text(re.compile(
        r"worth more with λ = 0.9 than with λ = 0, by over 1: [\d.]+\sagainst\s−[\d.]+\."))
    expect(page.get_by_text("start_value/greedy", exact=False)).to_have_count(0)  # the check itself is a click away
    expect(page.locator(".rl-compare-chart .js-plotly-plot")).to_have_count(1, timeout=SLOW)
    expect(page.get_by_role("button", name="One more seed")).to_be_visible()
    page.get_by_role("button", name="All lessons").click()
    expect(page.get_by_text("The claim holds, as you predicted")).to_be_visible(timeout=SLOW)


@pytest.mark.long
def test_no_row_of_cards_has_a_hole_and_all_pictures_have_one_size(page: Page, server: Server) -> None:
    """Some topics have an odd number of lessons, so a card may be alone in its row."""
    page.goto(f"{server.url}/lessons")
    expect(page.locator(".st-key-lesson_cards .rl-lesson").last).to_be_visible(timeout=SLOW)
    widths, cards = page.evaluate("""() => {
        const all = document.querySelector(".st-key-lesson_cards");
        const columns = [...all.querySelectorAll(".stColumn")].filter((each) =>
            !each.parentElement.closest(".stColumn"));
        return [[...all.querySelectorAll(".rl-lesson")].map((each) => each.getBoundingClientRect().width),
          columns.map((each) => each.querySelectorAll(".rl-lesson").length)]; }""")
    assert len(cards) == len(widths) > 10 and {*cards} == {1}
    assert max(widths) - min(widths) < 8


def test_a_curve_is_drawn_by_pointer_and_by_keys_on_a_page_that_does_not_scroll_sideways(page: Page,
                                                                                         server: Server) -> None:
    fits(page, f"{server.url}/lessons?lesson=entropy", ".rl-draw-curve svg")
    sheet = page.locator(".rl-draw-curve svg")
    box = sheet.bounding_box()
    assert box is not None
    with grabbed(sheet, 0.12 * box["width"], 0.1 * box["height"]) as move:
        move(0.95 * box["width"], 0.8 * box["height"], steps=8)
    knots = page.get_by_role("slider")
    values = [float(knots.nth(place).get_attribute("aria-valuenow") or "nan") for place in range(9)]
    assert values == sorted(values, reverse=True) and values[0] > 1.5 > 0.5 > values[-1]
    expect(page.get_by_role("button", name="Lock my prediction and run")).to_be_enabled(timeout=SLOW)
    knots.nth(8).focus()
    page.keyboard.press("ArrowUp")
    assert float(knots.nth(8).get_attribute("aria-valuenow") or "nan") == pytest.approx(values[-1] + 0.1)
    page.keyboard.press("ArrowLeft")
    expect(knots.nth(7)).to_be_focused()


def test_a_chart_of_small_shares_ends_just_above_the_largest(page: Page) -> None:
    curves = ROOT / "app" / "components" / "curves"
    source = "\n".join((curves / f"{name}.js").read_text("utf-8") for name in ("axes", "layout"))
    ranges = page.evaluate(f"""() => {{ {source}
        const linesOf = (panel) => panel.lines, form = {{ up: 7, rates: [0, 1] }};
        const axis = (scale, ...lines) =>
            yAxis({{ theme: {{}}, form }}, {{ scale, lines: lines.map((y) => ({{ y }})) }});
        return [axis("small rate", [0, 0], [0.05, 0.09]), axis("small rate", [0, 0]), axis("small rate"),
          axis("rate", [0, 0.09])].map(({{ range }}) => range); }}""")
    assert ranges[0][0] < 0 < 9 < ranges[0][1] < 10  # percent
    assert ranges[1] == ranges[2] and 0 < ranges[1][1] < 3 and ranges[3][1] >= 1


def test_a_completion_s_bar_begins_at_its_baseline_or_at_0(page: Page) -> None:
    """Compares left and width, in percent. Without a baseline, completions still have bars if all rewards are equal."""
    source = (ROOT / "app" / "components" / "microscope" / "microscope.js").read_text("utf-8")
    own = "function barOf" + source.split("function barOf")[1].split("\n}\n")[0] + "\n}"
    made = source.split("function made")[1].split("\n}\n")[0]
    bars = page.evaluate(f"""() => {{ function made{made}
        }}
        const format = String; {own}
        const bar = (earned, baseline, range) => {{ const {{ style }} = barOf({{ earned, baseline }}, range).firstChild;
          return [parseFloat(style.left), parseFloat(style.width)]; }};
        return [bar(1, null, [1, 1]), bar(0, null, [0, 1]), bar(-1, null, [-1, 1]), bar(1, 0.5, [0, 1])]; }}""")
    assert bars == [[0, 100], [0, 0], [0, 50], [50, 50]]
