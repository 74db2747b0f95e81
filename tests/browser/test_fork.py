"""What if? Forks made on the page, by a click on a marker's words and by the key F."""

import re

import pytest
from playwright.sync_api import Page, expect

from labcore.analysis.doctor import doctor
from labcore.analysis.doctor.finding import Change, Finding
from labcore.catalog.metrics import METRICS
from labcore.runs.files import paths
from labcore.runs.fork import fork_spec
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from labcore.workers.worker import drive
from tests.browser.conftest import Server
from tests.browser.test_script_texts import settled

SLOW = 60_000
SMALL = {"sft_steps": 0, "prompts_per_step": 8, "group_size": 8, "max_new_tokens": 4, "reward_shape": "shaped"}
KL = "KL to the reference"
WORDS = ".rl-live-chart .annotation-text-g"  # of the markers
# {line's name: [[x, y], …]} of all charts
LINES = """() => Object.fromEntries([...document.querySelectorAll('.rl-live-chart .js-plotly-plot')]
    .flatMap(plot => plot.data).filter(trace => trace.name).map(trace => [trace.name,
        [...trace.x].map((x, at) => [x, trace.y[at]])]))"""


@pytest.fixture
def parent(server: Server, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, str]:
    """A finished run of the server's lab whose β was moved from 0.04 to 0.5 after step 5."""
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    assert paths.home() == server.home
    store = Store()
    run_id = store.create(make(algorithm_key="grpo", task_key="add", steps=12, knobs=SMALL))

    def on_record(_run, record, _seconds):
        if record.step == 5:
            store.ask(run_id, "set", {"knob": "beta", "value": 0.5})

    assert drive(store, run_id, on_record=on_record) == "finished", store.run(run_id).message
    return store, run_id


def learnt(store: Store, run_id: str) -> list[dict[str, float]]:
    """What a run learnt, step by step from the sixth on: all but speed and memory."""
    return [{key: value for key, value in step.metrics.items() if METRICS[key].about == "training"}
            for step in store.steps_after(run_id, 5)]


def fork(page: Page, server: Server, store: Store, parent: str, beta: str) -> str:
    """Click the marker's words, give β another value, fork; wait for the child's end. Returns its id."""
    page.goto(f"{server.url}/llm?run={parent}")
    page.locator(WORDS).first.click(timeout=SLOW)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("What if β had been … from step 5 on?")).to_be_visible(timeout=SLOW)
    price = dialog.get_by_role("spinbutton", name=re.compile("KL coefficient"))
    expect(price).to_have_value("0.04")
    price.fill(beta)
    price.press("Enter")
    expect(dialog.get_by_text(f"β 0.04 → {beta}").last).to_be_visible(timeout=SLOW)
    dialog.get_by_role("button", name="Fork from step 5").click()
    expect(page.get_by_text("This run, forked from")).to_be_visible(timeout=SLOW)
    child = re.search(r"run=([\w-]+)", page.url)[1]
    expect(page.get_by_role("button", name="Another seed")).to_be_visible(timeout=SLOW)  # the run is finished
    settled(page)
    expect(page.get_by_text("12 of 12 steps")).to_be_visible(timeout=SLOW)
    return child


def drawn(page: Page, line: str) -> dict[str, list[list[float]]]:
    """The lines of all charts, once `line` has the eight points of a fork."""
    page.wait_for_function(f"() => ({LINES})()['{line}']?.length === 8", timeout=SLOW)
    return page.evaluate(LINES)


def test_a_fork_grows_from_its_parents_point(page: Page, server: Server, parent: tuple[Store, str]) -> None:
    store, run_id = parent
    other = fork(page, server, store, run_id, "2")
    assert learnt(store, other)[0]["reward"] == learnt(store, run_id)[0]["reward"]  # sampled before β counted
    assert learnt(store, other) != learnt(store, run_id)
    tiles = page.locator(".rl-tile").all_inner_texts()
    page.evaluate("""() => document.dispatchEvent(new CustomEvent("rl-row", { detail:
        { run: "another", last: 12, status: "Of another run", tiles: [] } }))""")
    assert page.locator(".rl-tile").all_inner_texts() == tiles != []
    expect(page.get_by_text("Of another run")).to_have_count(0)
    new, above = (title(store.run(each)) for each in (other, run_id))
    lines = drawn(page, f"{new} · {KL}")
    assert [line for line in lines if above in line and "KL" in line] == [f"{above} · {KL}"], "its first metric alone"
    expect(page.locator(WORDS, has_text="fork").first).to_be_attached(timeout=SLOW)
    expect(page.locator(WORDS, has_text="0.04 → 0.5")).to_have_count(0)  # the parent's change came after the fork
    assert lines[f"{new} · {KL}"][0] == lines[f"{above} · {KL}"][4]
    assert lines[f"{new} · {KL}"] != lines[f"{above} · {KL}"][4:]


@pytest.mark.long
def test_a_fork_is_smoothed_anew_forked_and_compared_and_its_parent_is_advised(
        page: Page, server: Server, parent: tuple[Store, str]) -> None:
    store, run_id = parent
    other = store.create(fork_spec(store, run_id, 5, knobs={"beta": 2.0}), mine=True)
    assert drive(store, other) == "finished"
    new, above = (title(store.run(each)) for each in (other, run_id))
    page.goto(f"{server.url}/llm?run={other}")
    lines = drawn(page, f"{new} · {KL}")
    page.goto(f"{server.url}/llm?run={other}&smooth=0.9")
    smooth = drawn(page, f"{new} · {KL}")
    for line, place in ((f"{new} · {KL}", 1), (f"{above} · {KL}", 5)):  # anew after the fork, and after the marker
        assert smooth[line][place] == lines[line][place] and smooth[line][place + 1] != lines[line][place + 1]
    assert smooth[f"{new} · {KL}"][0] == smooth[f"{above} · {KL}"][4]

    page.keyboard.press("f")
    expect(page.get_by_role("dialog").get_by_role("button", name=re.compile("Fork from step"))).to_be_visible(
        timeout=SLOW)
    page.keyboard.press("Escape")
    page.get_by_role("link", name=re.compile("Compare with its parent")).click(timeout=SLOW)
    page.wait_for_url(re.compile(rf"compare\?runs={run_id}(,|%2C){other}"), timeout=SLOW)

    found = Finding("The steps are too big", "gradient norm 0.3 → 4 in steps 4 to 8", "A lower learning rate.",
                    "learning_rate", 0.0002, "step_too_big", "problem")
    store.log(run_id, doctor.EVENT, doctor.payload(Change(8, found.rule, found)), 8)
    heights = []
    for step in (1, 9):  # its place is kept where nothing is wrong
        page.goto(f"{server.url}/llm?run={run_id}&at={step}")
        row = page.locator(".st-key-doctor")
        expect(page.locator(".rl-scrubber output")).to_have_text(re.compile(f"step {step} of"), timeout=SLOW)
        expect(row.get_by_role("button", name="Fork with η")).to_have_count(int(step > 8), timeout=SLOW)
        heights.append(row.bounding_box()["height"])
    assert heights[0] == heights[1]
    expect(row.get_by_text("gradient norm 0.3 → 4")).to_be_visible()
    row.get_by_role("button", name="Fork with η 0.0007 → 0.0002").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("spinbutton", name=re.compile("Learning rate"))).to_have_value("0.0002", timeout=SLOW)
    expect(dialog.get_by_role("button", name="Fork from step 5")).to_be_visible()
