"""What the server says beside the pages: a browser runs no script from elsewhere, and no foreign name reads the lab."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Server

PATHS = ["/", "/_stcore/health", "/llm", "/no-such-file.js"]


def answer(server: Server, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(server.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, dict(response.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_headers(server: Server, path: str) -> None:
    _, headers = answer(server, path)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "SAMEORIGIN"
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == "'self'"
    assert not any(word in policy["script-src"] for word in ("http", "*", "'unsafe-eval'"))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8501", "127.0.0.1.evil.example", "localhost.evil", ""])
@pytest.mark.parametrize("path", PATHS[:2])
def test_a_foreign_host_is_refused(server: Server, path: str, host: str) -> None:
    assert answer(server, path, Host=host)[0] == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8501", "LOCALHOST:80"])
def test_this_machine_by_its_own_names_is_served(server: Server, host: str) -> None:
    assert answer(server, "/_stcore/health", Host=host)[0] == 200


def test_a_script_from_elsewhere_does_not_run(tab: Page, server: Server) -> None:
    tab.goto(server.url + "/_stcore/health")  # an answer of the lab that has no script of its own
    blocked = tab.evaluate("""() => new Promise(resolve => {
        addEventListener("securitypolicyviolation", event => resolve(event.blockedURI));
        const script = document.createElement("script");
        script.src = "http://127.0.0.1:9/evil.js";
        document.head.append(script);
    })""")
    assert blocked == "http://127.0.0.1:9/evil.js"


def test_the_server_watches_no_file_of_the_code(page: Page, server: Server) -> None:
    """Otherwise Streamlit lists the files of all modules for every page that is opened, and answers no page
    meanwhile."""
    page.goto(f"{server.url}/foundations")
    page.get_by_role("heading").first.wait_for()
    told = [each.read_text() for each in Path(f"/proc/{server.process.pid}/fdinfo").glob("*")]
    assert told and not any("inotify wd:" in each for each in told)
