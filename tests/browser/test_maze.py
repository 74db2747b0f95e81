"""The maze as a person uses it: run it, look at a cell, paint, come back by the link. In a real browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from labcore.classic.envs.maze_text import from_json, unfinished
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.browser.conftest import Server
from tests.browser.hand import grabbed
from tests.browser.test_clock import COVERED
from tests.browser.test_llm_lab import SLOW
from tests.browser.test_script_texts import settled

RETURNS = """() => (document.querySelector('.rl-live-chart .rl-plot')?.data ?? [])
    .find(trace => trace.name === 'Return')?.y ?? []"""
RUN = re.compile("^Run")


def board(page: Page, server: Server, query: str = "") -> Locator:
    page.goto(f"{server.url}/maze{query}")
    canvas = page.locator(".rl-maze-board canvas")
    canvas.wait_for(timeout=SLOW)
    return canvas


def walk(page: Page, canvas: Locator, *keys: str) -> str:
    """Press keys on the board; what it says of the cell it then stands on."""
    canvas.focus()
    for key in keys:
        canvas.press(key)
    return page.locator(".rl-unseen").first.inner_text()


def drag(canvas: Locator, shape: tuple[int, int], *cells: tuple[int, int]) -> None:
    """Draw a stroke through cells, counted from 0, of a maze of that shape."""
    box = canvas.bounding_box()
    side = (box["height"] - 18) / shape[0]
    first, *others = [(22 + (column + 0.5) * side, 16 + (row + 0.5) * side) for row, column in cells]
    with grabbed(canvas, *first) as move:
        for place in others:
            move(*place)


def maze_in(url: str):
    return unfinished(re.search(r"maze=([^&]+)", url)[1])


def signs(maze) -> list[list[str]]:
    return [[cell.kind for cell in row] for row in maze.cells]


@pytest.mark.long
def test_q_learning_untouched_learns_and_shows_where_to_go(page: Page, server: Server) -> None:
    canvas = board(page, server, "?steps=3000")  # so that it still goes when it is stopped
    page.get_by_role("button", name=RUN).click(timeout=SLOW)
    page.wait_for_function(f"() => ({RETURNS})().length > 60", timeout=SLOW)
    assert page.evaluate(COVERED) == [], "the axes that begin on the first screen are seen above the scrubber"
    returns = page.evaluate(RETURNS)
    assert sum(returns[-10:]) > sum(returns[:10])
    expect(canvas).to_have_attribute("aria-label", re.compile(r"8 rows by 8 columns.*Coloured by max Q"))
    assert re.fullmatch(r"row 2, column 1 · free · max Q\(s,·\) \S+ · (up|right|down|left).*",
                        walk(page, canvas, "ArrowDown"))
    canvas.press("Enter")
    expect(page.get_by_role("heading", name="Row 2, column 1 · free")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Last update")).to_be_visible(timeout=SLOW)

    page.get_by_label("One move back").click()  # what is played stays while newer episodes come
    held = page.locator(".rl-episode .rl-count").inner_text()
    canvas.focus()
    canvas.evaluate("canvas => { window.before = canvas; }")
    expect(page.get_by_role("button", name=re.compile("^Newest episode, step"))).to_be_visible(timeout=SLOW)
    assert page.locator(".rl-episode .rl-count").inner_text() == held
    assert page.evaluate("document.activeElement === window.before && window.before.isConnected")
    page.get_by_role("button", name=re.compile("^Stop Shortcut")).click()
    expect(page.get_by_text("Stopped").first).to_be_visible(timeout=SLOW)


@pytest.mark.long
def test_an_episode_is_played_move_by_move_and_earlier_sweeps_are_found(
        moving: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    page = moving
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    store = Store()
    run_id = store.create(make(kind="maze", algorithm_key="q_learning", task_key="textbook", steps=6), mine=True)
    assert drive(store, run_id) == "finished"
    board(page, server, f"?run={run_id}")
    expect(page.get_by_text("Finished").first).to_be_visible(timeout=SLOW)
    count = page.locator(".rl-episode .rl-count")
    expect(count).to_have_text(re.compile(r"^move (\d+) of \1$"), timeout=SLOW)
    page.get_by_label("Move", exact=True).press("Home")
    expect(count).to_have_text(re.compile("^move 0 of"))
    page.get_by_label("One move forward").click()
    expect(page.locator(".rl-episode p")).to_contain_text(re.compile(r"row 1, column 1, \w+.*Q\(s,.\) ← .* = "))
    page.get_by_label("Move", exact=True).press("End")
    for _ in range(3):
        page.get_by_label("One move back").click()
    page.get_by_label("Play the episode").click()
    expect(count).to_have_text(re.compile(r"^move (\d+) of \1$"), timeout=SLOW)
    page.get_by_label("One step back").click()
    expect(page.locator(".rl-episode p")).to_contain_text("The episode of step 5", timeout=SLOW)
    page.get_by_role("button", name="Latest", exact=True).click()
    expect(page.locator(".rl-episode p")).to_contain_text("The episode of step 6", timeout=SLOW)


@pytest.mark.long
def test_what_is_painted_is_in_the_link_and_in_the_run(page: Page, server: Server) -> None:
    canvas = board(page, server, "?task=corridors&steps=5&pace=0")
    drag(canvas, (8, 8), (0, 0), (0, 0))  # the start itself: a stroke of one cell
    page.wait_for_url(re.compile("maze="), timeout=SLOW)
    expect(page.get_by_text(re.compile("has no start")).first).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url(re.compile(r"^((?!maze=).)*$"), timeout=SLOW)

    drag(canvas, (8, 8), (1, 0), (6, 0))  # quickly: the cells between belong to it
    page.wait_for_url(re.compile("maze="), timeout=SLOW)
    wanted = signs(maze_in(page.url))
    assert [row[0] for row in wanted] == ["start"] + ["wall"] * 7
    page.reload()
    canvas.wait_for(timeout=SLOW)
    assert "row 2, column 1 · wall" in walk(page, canvas, "ArrowDown")

    page.get_by_role("button", name=RUN).click(timeout=SLOW)
    page.wait_for_url(re.compile(r"[?&]run="), timeout=SLOW)
    store = Store(f"sqlite:///{server.home}/lab.db")
    spec = store.run(re.search(r"run=([\w-]+)", page.url)[1]).spec
    assert (spec.kind, spec.task, spec.algorithm) == ("maze", "own", "q_learning")
    assert signs(unfinished(spec.knobs["maze"])) == wanted and spec.knobs["gamma"] == 0.97
    expect(page.get_by_text("Finished").first).to_be_visible(timeout=SLOW)


def test_a_goal_without_a_way_is_said_a_maze_is_saved_and_loaded_and_a_bad_file_is_a_sentence(
        page: Page, server: Server, tmp_path: Path) -> None:
    canvas = board(page, server, "?task=own&maze=S2.~.TG_-10~10_0_0_0.9")
    walk(page, canvas, "ArrowRight", "ArrowRight", "Enter")
    expect(page.get_by_text(re.compile("goal in row 2, column 3 cannot be reached"))).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text(re.compile("cannot be reached"))).to_have_count(0, timeout=SLOW)
    with page.expect_download(timeout=SLOW) as download:
        page.get_by_role("button", name="Save").click()
    assert signs(from_json(Path(download.value.path()).read_text("utf-8")))[1] == ["free", "trap", "goal"]
    bad, good = tmp_path / "bad.json", tmp_path / "good.json"
    bad.write_text('{"rows": ["S.?"]}', "utf-8")
    good.write_text('{"rows": ["SG"], "gamma": 0.5}', "utf-8")
    upload = page.locator("input[type=file]")
    for file in (bad, good):
        page.get_by_role("button", name="Load").click()
        upload.set_input_files(file)
        if file == bad:
            expect(page.get_by_text(re.compile(r"The maze holds '\?'"))).to_be_visible(timeout=SLOW)
            settled(page)
            expect(upload).to_have_count(0, timeout=SLOW)  # else the next file goes into what is about to close
    page.wait_for_url(re.compile("maze=SG"), timeout=SLOW)
    assert "gamma=0.5" in page.url
