"""The main job, as a person does it: run, turn a knob, pause, come back, export. In a real browser."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from transformers import AutoModelForCausalLM, AutoTokenizer

from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.app.seeding import seed
from tests.browser.conftest import Server

SLOW = 60_000  # ms: a busy machine is no reason to fail
# The drawn lines of all charts that have a path of more than one point.
DRAWN = """() => [...document.querySelectorAll('.scatterlayer path.js-line')]
    .filter(line => (line.getAttribute('d') || '').includes('L')).length"""


def fits(page: Page, url: str, there: str) -> None:
    """A page that was opened on a phone, and what is on it, are never wider than the window, then on a laptop too."""
    page.set_viewport_size({"width": 390, "height": 720})
    page.goto(url)
    expect(page.locator(there).first).to_be_visible(timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.set_viewport_size({"width": 1280, "height": 720})
    page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth", timeout=SLOW)
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def start_run(page: Page, server: Server, query: str = "") -> str:
    """Open the LLM lab, press Run, wait for curves. Returns the run's id."""
    page.goto(f"{server.url}/llm{query}")
    page.get_by_role("button", name=re.compile("^Run")).click(timeout=SLOW)
    page.wait_for_function(f"() => ({DRAWN})() > 0", timeout=SLOW)
    page.wait_for_url(re.compile(r"[?&]run="), timeout=SLOW)
    return re.search(r"run=([\w-]+)", page.url)[1]


@pytest.mark.long
def test_stop_stays_in_its_place_when_a_run_begins(page: Page, server: Server) -> None:
    store = Store(f"sqlite:///{server.home / 'lab.db'}")
    run_id = store.create(make(algorithm_key="grpo", task_key="sort"), mine=True)
    page.goto(f"{server.url}/llm?run={run_id}")
    pause, stop, fork = (page.get_by_role("button", name=re.compile(f"^{name}")) for name in ("Pause", "Stop", "Fork"))
    expect(stop).to_be_enabled(timeout=SLOW)
    expect(pause).to_be_disabled()
    expect(fork).to_be_disabled()
    before = [button.bounding_box() for button in (pause, stop, fork)]
    store.set_state(run_id, "running")
    expect(pause).to_be_enabled(timeout=SLOW)
    expect(fork).to_be_enabled(timeout=SLOW)
    assert [button.bounding_box() for button in (pause, stop, fork)] == before
    store.set_state(run_id, "stopped")
    store.dispose()


# How often elements were drawn anew while we look, and which of them began to fade meanwhile.
FADES = """() => new Promise(done => {
  const faded = new Set();
  let redrawn = 0;
  document.addEventListener("transitionrun", ({ propertyName, target }) => {
    if (propertyName === "opacity" && target.matches("[data-stale],[role=tabpanel]")) faded.add(target.className);
  }, true);
  new MutationObserver((found) => { redrawn += found.length; }).observe(document.body,
    { subtree: true, attributeFilter: ["data-stale"] });
  setTimeout(() => done([redrawn, [...faded]]), 1000);
})"""


def test_a_newcomer_presses_run_turns_a_knob_pauses_and_comes_back(page: Page, server: Server) -> None:
    run_id = start_run(page, server, "?steps=2000")
    # SFT is over, RL is running
    expect(page.get_by_role("button", name=re.compile("^Pause"))).to_be_enabled(timeout=SLOW)
    price = page.get_by_role("slider", name=re.compile("KL coefficient"))
    expect(price).to_have_count(1, timeout=SLOW)  # the form's own goes when the script is through
    expect(price).to_be_enabled(timeout=SLOW)

    price.press("ArrowRight")
    expect(page.get_by_text(re.compile(r"^β 0\.04 → ")).first).to_be_visible(timeout=SLOW)

    page.emulate_media(reduced_motion="no-preference")
    redrawn, faded = page.evaluate(FADES)
    page.emulate_media(reduced_motion="reduce")
    assert redrawn and not faded

    page.get_by_role("button", name=re.compile("^Pause")).click()
    expect(page.get_by_role("button", name=re.compile("^Resume"))).to_be_visible(timeout=SLOW)

    page.reload()
    expect(page.get_by_role("button", name=re.compile("^Resume"))).to_be_visible(timeout=SLOW)
    assert run_id in page.url
    expect(page.get_by_text(re.compile(r"^β 0\.04 → ")).first).to_be_visible(timeout=SLOW)

    page.keyboard.press("Shift+S")  # keys work on a page that was opened by its link
    expect(page.get_by_text("Stopped").first).to_be_visible(timeout=SLOW)


def trained(server: Server, steps: int) -> str:
    """Train a run in the server's lab and return its id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(server.home))
        store = Store()
        run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=steps), mine=True)
        assert drive(store, run_id) == "finished"
        store.dispose()
    return run_id


@pytest.fixture(scope="module")
def finished(server: Server) -> str:
    return trained(server, 15)


@pytest.mark.long
def test_the_curve_rises_and_the_export_loads(page: Page, server: Server, finished: str, tmp_path: Path) -> None:
    page.goto(f"{server.url}/llm?run={finished}&tab=Export")
    with page.expect_download(timeout=SLOW) as download:
        page.get_by_role("button", name="Download everything (zip)").click(timeout=SLOW)
    packed = tmp_path / "run.zip"
    download.value.save_as(packed)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    (metrics,) = tmp_path.rglob("metrics.csv")
    header, *rows = metrics.read_text(encoding="utf-8").splitlines()
    assert header.startswith("step,tokens,seconds,")
    exact = [float(row.split(",")[header.split(",").index("exact_match")]) for row in rows]
    assert len(rows) == 15
    assert sum(exact[-5:]) / 5 > sum(exact[:5]) / 5 + 0.1
    checkpoint = next(tmp_path.rglob("model.safetensors")).parent
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    assert tokenizer.decode(tokenizer("dbca=")["input_ids"]) == "dbca="
    assert model.num_parameters() > 100_000
    assert {"events.csv", "spec.json"} <= {path.name for path in tmp_path.rglob("*")}


def test_a_term_of_the_equation_shows_its_number_its_tokens_its_chart_and_its_knob(
        page: Page, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    store = Store()
    run_id = seed(store)
    page.goto(f"{server.url}/llm?run={run_id}&tab=Equation")
    formula, reading, tokens = (page.locator(f".rl-{name}") for name in ("formula", "reading p", "tokens"))
    beta = formula.get_by_role("button", name="KL coefficient, 0.2 reward/nat")
    ratio = formula.get_by_role("button", name=re.compile("Probability ratio .*, [0-9.]+"))
    expect(ratio).to_be_visible(timeout=SLOW)  # the first samples are there
    page.wait_for_function(f"() => ({DRAWN})() > 0", timeout=SLOW)  # nothing moves below the mouse any more
    lit = page.locator("figure[data-lit]")

    beta.hover()
    expect(reading).to_contain_text(re.compile(r"KL coefficient\s*0\.2 reward/nat · KL to the reference [0-9.]+ nats"))
    knob = page.locator("[data-rl-lit]")
    expect(knob).to_have_count(1)
    expect(knob).to_contain_text("KL coefficient")
    expect(lit).to_contain_text("KL to the reference")
    shown = page.locator(".rl-values small").inner_text()
    store.append(run_id, Record(7, 700, {"reward": 0.7, "kl": 0.07}), 3.5)
    expect(page.locator(".rl-values small")).not_to_have_text(shown, timeout=SLOW)  # the page was drawn anew
    expect(knob).to_have_count(1)
    expect(beta).to_have_attribute("data-lit", "")

    ratio.hover()
    expect(knob).to_have_count(0)
    expect(tokens.locator(".rl-strip > span small").first).to_have_text(re.compile("^[0-9.]+$"))
    expect(page.locator(".rl-reading > small")).to_contain_text(re.compile("^Ratio, .* of each token.*Step "))

    page.mouse.move(0, 0)
    expect(lit).to_have_count(0)
    formula.get_by_role("button").first.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(reading).to_contain_text("Probability ratio")
    page.keyboard.press("Escape")
    expect(reading).to_contain_text("Hover or tap")

    beta.click()  # stays, wherever the mouse is, until it is clicked again
    page.mouse.move(0, 0)
    expect(beta).to_have_attribute("aria-pressed", "true")
    expect(knob).to_have_count(1)
    beta.click()
    page.mouse.move(0, 0)
    expect(knob).to_have_count(0)


@pytest.mark.long
def test_what_algorithms_cost_is_counted_once_it_is_unfolded_and_scrolls_in_its_own_box_on_a_phone(
        page: Page, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 720})
    page.goto(f"{server.url}/llm?task=reviews&model=tiny")
    page.get_by_text("Models held and their cost").click(timeout=SLOW)
    table = page.locator(".rl-cost")
    expect(table).to_contain_text("reward model, policy (frozen)", timeout=SLOW)
    expect(table.locator(".rl-own")).to_have_text(re.compile("^GRPO.*B.*256 completions × 2$"))
    expect(page.get_by_role("button", name="Measure 8 algorithms on this machine")).to_be_enabled(timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert table.evaluate("found => found.scrollWidth > found.parentElement.clientWidth")
    # A row is not made tall by a cell that nobody sees.
    expect(table.locator("tbody tr").first.locator("td").last).to_have_css("white-space", "nowrap")


@pytest.mark.long
def test_charts_without_a_point_ask_for_the_first_one_early(page: Page, server: Server,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    store = Store()
    run_id = store.create(make(algorithm_key="grpo", task_key="sort"), mine=True)  # this process makes no step
    asked = []
    page.once("websocket", lambda socket: socket.on("framesent", lambda frame: asked.append(b"awaited" in frame)))
    page.goto(f"{server.url}/llm?run={run_id}")
    expect(page.locator(".rl-live-chart figure").first).to_be_visible(timeout=SLOW)
    page.wait_for_timeout(500)  # a page that polls slowly asks for nothing in this time
    store.set_state(run_id, "stopped")
    assert any(asked)


@pytest.mark.long
def test_an_upload_is_looked_at_and_tried_and_its_button_sets_the_verifier(page: Page, server: Server,
                                                                           tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(f'{{"question": "{n}+1=", "answer": "so\\n#### {n + 1}"}}' for n in range(30)))
    page.goto(f"{server.url}/llm?task=prompts")
    page.locator("input[type=file]").set_input_files(path, timeout=SLOW)
    expect(page.get_by_text("30 of 30 answers end in “#### number”")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text(re.compile(r"This 0\.1 M model answered \d+ of 16"))).to_be_visible(timeout=SLOW)
    page.get_by_role("button", name="Use the numeric verifier").click()
    expect(page.get_by_text("but the verifier is exact")).to_have_count(0, timeout=SLOW)
    page.get_by_role("button", name=re.compile("^Run")).click()  # whatever was found
    stop = page.get_by_role("button", name=re.compile("^Stop Shortcut"))  # the trial of the new verifier has its own
    expect(stop).to_be_visible(timeout=SLOW)
    stop.click()
    expect(page.get_by_text("Stopped").first).to_be_visible(timeout=SLOW)


@pytest.mark.long
def test_the_story_strip_shows_answers_with_bars_that_move_and_keeps_the_prompt(moving: Page, server: Server,
                                                                                finished: str) -> None:
    page = moving
    page.goto(f"{server.url}/llm?run={finished}")
    strip = page.locator(".rl-story-strip")
    expect(strip.locator(".rl-story-step")).to_have_text("answers of step 15", timeout=SLOW)
    expect(strip.locator("li").first).to_have_attribute("aria-label", re.compile(r"right \(check: exact match\), .*%"))
    expect(strip.locator(".rl-story-says")).to_contain_text("the right one")
    height = strip.bounding_box()["height"]
    assert height < 210

    heat = strip.locator("canvas")
    heat.hover(position={"x": 4, "y": 4})
    expect(strip.locator("output")).to_contain_text("before step 1")
    heat.focus()
    heat.press("ArrowLeft")
    expect(strip.locator(".rl-story-unseen")).to_contain_text(re.compile(r"step \d+ .* %"))

    strip.get_by_role("combobox", name="Prompt").select_option("w2")
    page.wait_for_url(re.compile(r"[?&]story=w2"), timeout=SLOW)
    expect(strip.get_by_role("button", pressed=True)).to_have_count(1, timeout=SLOW)
    asked = strip.get_by_role("combobox").locator("option:checked").inner_text()
    page.reload()
    expect(strip.get_by_role("combobox").locator("option:checked")).to_have_text(asked, timeout=SLOW)
    strip.get_by_role("button", pressed=True).click()
    page.wait_for_url(re.compile(r"^(?!.*story=)"), timeout=SLOW)
    assert strip.bounding_box()["height"] == height


def test_the_microscope_says_the_arithmetic_of_a_token_and_keeps_what_was_chosen(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/llm?run={trained(server, 5)}&at=5")
    scope = page.locator(".rl-microscope")
    expect(scope.locator(".rl-scope-of")).to_have_text("Step 5", timeout=SLOW)
    expect(page.locator(".st-key-scope_equation .katex-html")).to_be_visible(timeout=SLOW)
    row = scope.locator(".rl-scope-row:not([aria-current=true])").first
    written = row.locator("code").inner_text()
    row.click()
    page.wait_for_url(re.compile(r"[?&]prompt=\d&completion=\d"), timeout=SLOW)
    expect(scope.locator("h4")).to_have_text(re.compile(f"={re.escape(written.rstrip('…'))}"), timeout=SLOW)

    tokens, lines = scope.locator("[data-token]"), scope.locator(".rl-scope-lines").last
    tokens.nth(1).hover()
    expect(lines.locator("caption")).to_have_text(re.compile("^Token 2 of "))
    rows = {cells[1]: cells for cells in (each.split("\t") for each in lines.inner_text().splitlines()) if cells[1:]}
    worked = re.search(r"([−\d.]+) × \(?([−\d.]+)\)? = ([−\d.]+)", rows["ρÂ"][2]).groups()
    first, second, result = (float(number.replace("−", "-")) for number in worked)
    assert first * second == pytest.approx(result, abs=2e-3)
    assert f"{first:.4f}" in rows["ρ"][2]  # the ratio that was just worked out
    lines.get_by_role("row", name=re.compile("^Ratio")).hover()
    expect(page.locator("[data-rl-term-lit]").first).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")
    lines.get_by_role("button", name="Ratio").click()
    expect(scope.locator(".rl-scope-source")).to_contain_text("def token(")

    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    assert "at=5" in page.url  # the key was the strip's, not the clock's

    count = scope.get_by_role("button", name=re.compile("^With signal"))
    signal = int(re.search(r"\d+$", count.inner_text())[0])
    count.click()
    expect(scope.locator(".rl-scope-card")).to_have_count(signal)
    scope.get_by_role("combobox", name="Sort").select_option("worst")
    page.wait_for_url(re.compile("sort=worst"), timeout=SLOW)
    page.keyboard.press("Escape")
    page.locator(".rl-scrubber button").first.click()
    expect(scope.locator(".rl-scope-of")).to_have_text("Step 1, the nearest before step 4", timeout=SLOW)
    expect(scope.get_by_role("combobox", name="Sort")).to_have_value("worst")

    page.set_viewport_size({"width": 390, "height": 844})
    tokens.last.click()
    expect(tokens.last).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.long
def test_a_mix_is_named_saved_and_changed(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/llm?advantage=group_mean")
    card, details = page.locator(".st-key-mix"), page.locator(".st-key-mix_details")
    expect(card).to_contain_text("Nearest: GRPO", timeout=SLOW)
    expect(details.locator(".katex").first).to_be_visible()
    expect(details.locator(".katex-error")).to_have_count(0)
    card.get_by_role("button", name="Name this mix").click()
    name = card.get_by_label("Name of your mix")
    name.fill("Plain means")
    name.press("Enter")
    page.wait_for_url(re.compile(r"[?&]mix=Plain(\+|%20)means"), timeout=SLOW)
    card.get_by_role("button", name="Save this mix").click()
    expect(card.get_by_role("button", name="Save this mix")).to_have_count(0, timeout=SLOW)
    expect(page.get_by_role("combobox", name="Algorithm")).to_have_value("Your mixes: Plain means")

    aggregation = page.get_by_role("combobox", name="Aggregation")
    aggregation.scroll_into_view_if_needed()
    aggregation.click()
    page.get_by_role("option", name="sum over tokens, divided by B × the length limit").click()
    expect(card).to_contain_text("Nearest: Dr. GRPO. Differs in:KL placement", timeout=SLOW)
    card.get_by_role("button", name="Save the changes").click()
    expect(card.get_by_role("button", name="Save the changes")).to_have_count(0, timeout=SLOW)

    fits(page, f"{server.url}/llm?mix=Plain%20means&advantage=group_mean", ".st-key-mix_details")
