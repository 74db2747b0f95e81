"""Texts that a browser, Markdown or Streamlit could take for more: on every page they are shown as they are."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from labcore.compare import imported
from labcore.files.paths import run_folder
from labcore.shelf import marks
from labcore.store.store import Store
from tests.app.seeding import samples, seed
from tests.browser.conftest import Server
from tests.compare import tools

pytestmark = pytest.mark.browser

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
        each.matches('.katex, em, strong, code') && said === 'bad' ||
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


@pytest.fixture(scope="module")
def runs(server: Server) -> dict[str, str]:
    """Runs and an import that hold bad texts wherever a text can be the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_LAB_HOME", str(server.home))
        store = Store()
        llm = seed(store, "failed", message=f"It broke at {BAD}", knobs={"pattern": BAD} if False else {})
        picture = samples()
        for number, group in enumerate(picture["groups"]):
            group |= {"prompt": BAD, "answer": f"{number}{BAD}"}
            for completion in group["completions"]:
                pieces = re.findall(r".{1,9}", BAD)
                lists = {key: [value[0]] * len(pieces) for key, value in completion.items() if isinstance(value, list)}
                completion |= lists | {"text": BAD, "tokens": pieces}
        (run_folder(llm) / "samples" / "step-000005.json").write_text(json.dumps(picture))
        store.log(llm, "knob", {"knob": "beta", "from": 0.2, "to": 0.3, "update": 4, "between": 1, "text": BAD}, 4)
        pair = [tools.stored(store, [0.1 * level, 0.2], seed=level) for level in range(2)]
        for text in SHORT:
            marks.tag(store, [llm], add=[text])
        marks.note(store, llm, BAD)
        table = "\n".join([f'step,reward,"{BAD}"', "1,0.5,1", "2,0.6,2", ""])
        [brought] = imported.keep(store, "bad.csv", table.encode(), BAD)
        return {"llm": llm, "pair": ",".join(pair), "import": brought.id}


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
    page.wait_for_timeout(300)  # for what a component draws of it
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def shown_as_text(page: Page, where: str, *texts: str) -> None:
    """Nothing was made of a bad text, and each of `texts` can be read."""
    assert page.evaluate(MADE) == [], where
    if texts:
        read = page.evaluate(READ)
        assert [text for text in texts if text not in read] == [], where


def test_every_tab_of_a_run(page: Page, opened, runs: dict[str, str]) -> None:
    opened(f"llm?run={runs['llm']}")
    shown_as_text(page, "llm", "<b class=bad>1</b>")
    for name in page.get_by_role("tab").all_inner_texts():
        page.get_by_role("tab", name=name, exact=True).click()
        settled(page)
        shown_as_text(page, name)


@pytest.mark.parametrize("address, texts", [
    ("", ()), ("runs", ()), ("runs?group=tag", ()), ("runs?find={bad}", ()), ("compare?runs={pair},{import}", ("<b class=bad>",)),
    ("compare?runs={bad}", ("<b class=bad>",)), ("compare?metric={bad}", ("<b class=bad>",)), ("llm?run={bad}", ("<b class=bad>",)),
    ("llm?model={bad}&mix={bad}&task={bad}&steps={bad}", ("<b class=bad>",)), ("maze?maze={bad}&pace={bad}", ()),
    ("cartpole?task={bad}", ("<b class=bad>",)), ("playground?runs={bad}&prompt={bad}", ("<b class=bad>",)),
    ("lessons?lesson={bad}", ("<b class=bad>",)), ("studies?study={bad}", ("<b class=bad>",)), ("{bad}", ())])
def test_every_page(page: Page, opened, runs: dict[str, str], address: str, texts: tuple[str, ...]) -> None:
    from urllib.parse import quote
    opened(address.format(bad=quote(BAD, safe=""), **runs))
    shown_as_text(page, address, *texts)
