"""Texts that a browser, Markdown or Streamlit could take for more: on every page they are shown as they are."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from app.compare.one_batch.batch import Batch, to_compare
from app.llm import chain, labelling
from labcore.runs import jobs
from labcore.runs.files.paths import run_folder
from labcore.runs.files.uploads import keep_file
from labcore.runs.imports import imported
from labcore.runs.lists import marks
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.runs.titles import title
from labcore.tasks import labels
from tests.app.asking import batch, trained
from tests.app.seeding import samples, seed
from tests.browser.conftest import Server, wait_for
from tests.browser.test_runs import table, tick

SLOW = 60_000  # ms: a busy machine is no reason to fail
BAD = ("<b class=bad>1</b><img src=bad onerror=alert(1)><script>alert(2)</script>[bad](javascript:alert(3))"
       "![bad](bad.png)$bad$ :material/bug_report: :red[bad] *bad*")
SHORT = ("<b class=bad>1</b>", "<img src=bad onerror=alert(1)>", "[bad](javascript:alert(3))", "![bad](bad.png)",
         "$bad$ :red[bad] *bad*", ":material/bug_report:")
# What was made of a bad text, in the page and in its components' own trees.
MADE = """() => {
  const found = [], walk = (root) => { for (const each of root.querySelectorAll('*')) {
    const said = each.textContent.trim(), colour = each.getAttribute('style') || '';
    const link = each.getAttribute('href') || each.getAttribute('xlink:href') || '';
    if (each.matches('.bad, [src*="bad"]') || /^javascript/i.test(link) ||
        each.matches('em, strong, code, a') && said === 'bad' || each.matches('.katex') && said.includes('bad') ||
        each.matches('span') && colour.includes('color') && said === 'bad' ||
        each.matches('[data-testid=stIconMaterial]') && said === 'bug_report') found.push(each.outerHTML.slice(0, 300));
    if (each.shadowRoot) walk(each.shadowRoot);
  } };
  walk(document);
  return found;
}"""
# All that can be read on the page.
READ = """() => {
  const read = (root) => [...root.querySelectorAll('*')].map(each => each.shadowRoot ? read(each.shadowRoot) : '')
      .join('') + (root.body || root).textContent;
  return read(document).replaceAll('\\u2060', '');
}"""


def own(store: Store, prompts: Path, pattern: str) -> str:
    """A finished run on prompts of one's own that looks for `pattern`, which then is part of its name."""
    run_id = store.create(make(algorithm_key="grpo", task_key="prompts", steps=2, data=str(keep_file(prompts, 10_000)),
                               knobs={"verifier": "contains", "pattern": pattern, "sft_steps": 0}), mine=True)
    store.set_state(run_id, "running")
    for step in (1, 2):
        store.append(run_id, Record(step, 10 * step, {"reward": 0.1 * step, "kl": 0.1}), step)
    store.set_state(run_id, "finished")
    return run_id


@pytest.fixture(scope="module")
def runs(server: Server) -> Iterator[dict[str, str]]:
    """Runs and an import that hold bad texts wherever a text can be the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(server.home))
        store = Store()
        llm = seed(store, "failed", message=f"It broke at {BAD}")
        picture = samples()
        for number, group in enumerate(picture["groups"]):
            group |= {"prompt": BAD, "answer": f"{number}{BAD}"}
            for completion in group["completions"]:
                pieces = re.findall(r".{1,9}", BAD)
                lists = {key: [value[0]] * len(pieces) for key, value in completion.items() if isinstance(value, list)}
                completion |= lists | {"text": BAD, "tokens": pieces}
        (run_folder(llm) / "samples" / "step-000005.json").write_text(json.dumps(picture))
        store.log(llm, "knob", {"knob": "beta", "from": 0.2, "to": 0.3, "update": 4, "between": 1, "text": BAD}, 4)
        prompts = server.home / "bad *bad* $bad$.jsonl"
        prompts.write_text(f"{json.dumps({'prompt': BAD, 'answer': BAD})}\n" * 8)
        pair = [own(store, prompts, text) for text in SHORT[:2]]
        assert store.add(replace(store.run(pair[0]), id="__bad__", state="interrupted", message=BAD),
                         store.steps_after(pair[0]), store.events_after(pair[0]))
        for text in SHORT:
            marks.tag(store, [llm], add=[text])
        marks.note(store, llm, BAD)
        table = "\n".join([f'step,reward,"{BAD}"', "1,0.5,1", "2,0.6,2", ""])
        [brought] = imported.keep(store, "bad.csv", table.encode(), BAD)
        yield {"llm": llm, "pair": ",".join(pair), "import": brought.id,
               "interrupted": title(store.run("__bad__"))}
        store.trash([llm, *pair, "__bad__", brought.id])  # the tests that follow count what is there


@pytest.fixture
def opened(page: Page, server: Server):
    """opened(address): the page there, once its script is through; at the end nothing was executed."""
    dialogs: list[str] = []

    def asked(dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    def go(address: str) -> None:
        page.goto(f"{server.url}/{address}")
        settled(page)

    page.on("dialog", asked)
    yield go
    page.remove_listener("dialog", asked)
    assert not dialogs


def settled(page: Page) -> None:
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=SLOW)
    page.wait_for_timeout(100)  # for what a component draws of it
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def shown_as_text(page: Page, where: str, *texts: str) -> None:
    """Nothing was made of a bad text, and each of `texts` can be read."""
    def all_read() -> bool:
        read = page.evaluate(READ)
        return all(text in read for text in texts)
    wait_for(all_read)  # components draw after the script is through
    assert page.evaluate(MADE) == [], where


def dialogs_show_text(page: Page, *buttons: str) -> None:
    """The same in what these buttons open."""
    dialog = page.get_by_role("dialog")
    for button in buttons:
        page.get_by_role("button", name=re.compile(button)).first.click(timeout=SLOW)
        expect(dialog).to_be_visible(timeout=SLOW)
        settled(page)
        shown_as_text(page, button)
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden(timeout=SLOW)


@pytest.mark.parametrize("tabs", [pytest.param(["Events", "Data"], id="two"),
                                  pytest.param([], id="all", marks=pytest.mark.long)])
def test_every_tab_of_a_run_and_the_dialog_of_a_fork(page: Page, opened, runs: dict[str, str], tabs) -> None:
    opened(f"llm?run={runs['llm']}")
    shown_as_text(page, "llm", "<b class=bad>1</b>")
    dialogs_show_text(page, "Fork")
    for name in tabs or page.get_by_role("tab").all_inner_texts():
        page.get_by_role("tab", name=name, exact=True).click()
        settled(page)
        shown_as_text(page, name)


def test_the_check_finds_what_it_looks_for(page: Page) -> None:
    page.set_content("<i class=bad>1</i><a href='javascript:x'>2</a><em>bad</em><img src=bad.png><p>fine</p>"
                     "<span class=katex><math>bad</math><i>bad</i></span><span style='color:red'>bad</span>")
    assert len(page.evaluate(MADE)) == 6


@pytest.mark.long
def test_what_is_said_of_a_run(page: Page, opened, runs: dict[str, str]) -> None:
    """Its note, its tags, how it ended: on Home, and in the drawer of the page Runs."""
    opened("")
    shown_as_text(page, "home", f"Resume {runs['interrupted']}")
    opened(f"runs?find={runs['llm']}")
    tick(table(page, 1), 0)
    page.get_by_role("button", name="Details").click(timeout=SLOW)
    expect(page.get_by_role("dialog")).to_be_visible(timeout=SLOW)
    settled(page)
    shown_as_text(page, "the drawer", BAD)


@pytest.mark.long
def test_pairs_to_label(page: Page, opened, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompt and completions of a pair; the job that samples them has been done."""
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    spec = chain.reward_model_spec(make(algorithm_key="grpo", task_key="reviews"))
    pair = {"prompt": BAD, "a": BAD, "b": f"b{BAD}", "a_truncated": False, "b_truncated": True, "answer": BAD,
            "line": None}
    job = jobs.put({"job": "pairs_to_label", "spec": spec.to_json(), "count": labelling.AT_ONCE,
                    "seed": 1 + len(labels.rows(spec))})  # as many as other tests have labelled
    jobs._keep(job, {"model": "", "pairs": [pair]})
    opened("llm?task=reviews&label=1")
    expect(page.get_by_text("Which is better?")).to_be_visible(timeout=SLOW)
    shown_as_text(page, "labelling", BAD, f"b{BAD}")


@pytest.mark.long
def test_one_batch(page: Page, opened, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of the batch in Compare's view of it, and what its charts say under the mouse."""
    monkeypatch.setenv("RL_LAB_HOME", str(server.home))
    run = trained(Store())
    asked = Batch(f"{run}@6", algorithms=to_compare(["grpo"])).spec()
    found = batch(asked)
    for completion in found["completions"]:
        completion |= {"prompt": BAD, "text": BAD, "tokens": [BAD, *completion["tokens"][1:]]}
    for algorithm in found["algorithms"]:
        algorithm["label"] = SHORT[0]
    jobs._keep(jobs.put(asked), found)
    opened(f"compare?runs={run}&view=batch")
    page.locator(".rl-push").first.wait_for(timeout=SLOW)
    shown_as_text(page, "one batch", BAD.replace(" ", "·"))  # the blanks of tokens are shown as dots
    for place in range(page.locator(".js-plotly-plot").count()):
        hovered(page, page.locator(".js-plotly-plot").nth(place), every=3)
    Store().trash([run])


def test_what_is_compared_and_its_curves_under_the_mouse(page: Page, opened, runs: dict[str, str]) -> None:
    bad = quote(BAD, safe="")
    opened(f"compare?runs={runs['pair']},{runs['import']},{bad}&metric={bad}")
    shown_as_text(page, "compare", "<b class=bad>")
    said = hovered(page, page.locator(".js-plotly-plot").first, every=3)
    assert "<b class=bad>" in said


def hovered(page: Page, chart: Locator, every: int) -> str:
    """Move the mouse across the middle of a chart, at each `every`th of 20 places, and return its hover texts; none of
    them may become HTML."""
    chart.hover()  # waits until the chart stands still
    box, said = chart.bounding_box(), ""
    assert box
    for place in range(1, 20, every):
        page.mouse.move(box["x"] + place * box["width"] / 20, box["y"] + box["height"] / 2)
        page.wait_for_timeout(60)
        said += "".join(page.locator(".hoverlayer").all_text_contents())
        shown_as_text(page, "under the mouse")
    return said


@pytest.mark.usefixtures("runs")
@pytest.mark.long
def test_runs_by_tag_and_the_dialogs_of_the_list(page: Page, opened) -> None:
    opened("runs?group=tag")
    shown_as_text(page, "runs")
    dialogs_show_text(page, "Clean up", "Import")


ADDRESSES = ("maze?maze={bad}&pace={bad}", "cartpole?task={bad}", "exact?algorithm={bad}", "lessons?lesson={bad}",
             "studies?study={bad}", "watch", "help")


@pytest.mark.parametrize("address", [
    "llm?model={bad}&mix={bad}&task={bad}&steps={bad}", "playground?runs={pair}", "{bad}",
    *(pytest.param(address, marks=pytest.mark.long) for address in ADDRESSES)])
def test_every_page(page: Page, opened, runs: dict[str, str], address: str) -> None:
    opened(address.format(bad=quote(BAD, safe=""), **runs))
    quoted = "{bad}" in address and not address.startswith(("maze", "{bad}"))
    shown_as_text(page, address, *["<b class=bad>"] * quoted)
