"""A shared file in a browser, opened from the disk: no server, no network."""

from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from app.components.projector import PROJECTOR
from app.share import document
from labcore.runs.store.store import Store
from tests.app.seeding import seed
from tests.app.test_share import ATTACK, put_samples


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two runs; a model has written markup in the first one."""
    store = Store()
    runs = [seed(store, "finished"), seed(store, "finished", algorithm="rloo")]
    put_samples(runs[0], 5, ATTACK)
    document.write(document.of_runs(store, runs), tmp_path / "runs.html")
    store.dispose()
    return tmp_path / "runs.html"


def test_a_shared_file_works_from_the_disk_and_steps(page: Page, file: Path):
    """A link to a step, all runs, one run, its steps by arrow keys, escaped markup, light and dark, a phone."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append(f"a dialog: {dialog.message}"))
    page.goto(f"{file.as_uri()}#run=2&step=3")
    expect(page.locator(".rl-scrubber output")).to_have_text("step 3 of 6")
    page.get_by_role("button", name="All runs").click()
    expect(page.get_by_role("heading", name="Comparison")).to_be_visible()
    expect(page.locator("figure .main-svg").first).to_be_attached()

    page.get_by_role("button", name="GRPO sort #1").click()
    value = page.locator(".rl-tile b").first
    expect(value).to_have_text("60 %")
    page.keyboard.press("ArrowLeft")
    expect(value).to_have_text("50 %")
    expect(page.locator(".rl-scrubber output")).to_have_text("step 5 of 6")
    expect(page).to_have_url(f"{file.as_uri()}#run=1&step=5")
    cells = page.locator(".rl-microscope .rl-scope-cards")
    expect(cells).to_contain_text(ATTACK[:20])
    assert page.locator('img, [onerror], script[src]').count() == 0

    save(page)
    project(page)

    grounds = set()
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        expect(page.locator(".rl-shared-run h1")).to_have_css("color", "rgb(231, 234, 238)" if scheme == "dark"
                                                              else "rgb(27, 31, 36)")
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}


@pytest.mark.long
def test_a_shared_file_is_embedded_in_a_page(page: Page, file: Path):
    post = file.with_name("post.html")
    post.write_text('<p>A post</p><iframe src="runs.html#run=2&step=3" width="640" height="500"></iframe>')
    page.goto(post.as_uri())
    expect(page.frame_locator("iframe").locator(".rl-scrubber output")).to_have_text("step 3 of 6")


def save(page: Page) -> None:
    """Save a chart as SVG and as PNG: with its title, its run and the run's settings, and as wide as two columns."""
    chart = page.locator('figure[data-panel="reward"]')
    for form in ("SVG", "PNG"):
        chart.locator(".rl-plot").hover()
        with page.expect_download() as saved:
            chart.locator(f'[data-title^="Save the chart as {form}"]').click()
        path = saved.value.path()
        if form == "PNG":
            assert Image.open(path).width == 2070
        else:
            assert all(said in path.read_text() for said in ("Reward", "GRPO sort #1 (seed 0), over steps"))
    page.mouse.move(0, 0)


def project(page: Page) -> None:
    """Show a chart on the whole screen in large type, step from there, show another one, and leave."""
    chart = page.locator('figure[data-panel="reward"]')
    before = chart.bounding_box()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("p")  # the projector: the chart is on the whole screen, in large type, and steps go on
    expect(chart).to_have_class("rl-projected")
    expect(page.locator(".rl-projected-bar")).to_contain_text("Step 5 of 6")
    page.wait_for_timeout(300)  # the chart draws itself anew
    box, letter = chart.bounding_box(), chart.locator(".xtick text").first.bounding_box()
    assert box["width"] > 1150 and box["height"] > 500 and letter["height"] > 18
    page.keyboard.press("ArrowRight")
    expect(page.locator(".rl-projected-bar")).to_contain_text("Step 6 of 6")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".rl-projected")).to_have_attribute("data-panel", "kl")
    page.keyboard.press("Escape")
    expect(page.locator(".rl-projected")).to_have_count(0)
    assert chart.bounding_box()["width"] == before["width"]


def test_the_projector_listens_until_the_last_one_of_a_page_is_gone_and_shows_the_largest_chart(page):
    """Not the one in the middle of the window; the words below it are large on a page without a font of its own, and
    no key is offered for steps where there are none."""
    page.set_content(f"""<style>{PROJECTOR.style}</style><div class="rl-compare-chart">
      <div class="rl-legend"><button><b>GRPO</b></button></div><figure class="large" style="height:300px;width:600px">
      </figure><figure style="height:100px;width:300px"></figure></div>""")
    script = "\n".join(path.read_text("utf-8") for path in PROJECTOR.files)
    assert page.evaluate("""async (script) => {
      const { update, dispose } = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
      const mount = () => {
        const parentElement = document.createElement("div");
        parentElement.innerHTML = '<div class="rl-projector"></div>';
        document.body.append(parentElement);
        update({ data: { label: "Projector", shortcut: "P", help: "help" }, parentElement });
        return parentElement;
      };
      const shown = (key) => {
        document.dispatchEvent(new KeyboardEvent("keydown", { key }));
        return document.querySelectorAll(".rl-projected").length;
      };
      const gone = (place) => { place.remove(); return dispose(place); };
      const one = mount(), two = mount();
      await gone(one);
      const found = [shown("p"), document.querySelector(".rl-projected").classList.contains("large"),
        document.querySelector(".rl-projected-bar").innerText.replace(/\\s+/g, " "),
        getComputedStyle(document.querySelector(".rl-projected-bar")).fontSize, shown("Escape")];
      await gone(two);
      return [...found, shown("p")];
    }""", script) == [1, True, "‹ GRPO ↑ ↓ switch · Esc closes › ✕", "26px", 0, 0]
