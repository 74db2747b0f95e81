"""With [auth] in secrets.toml nobody sees a page before a login; without it nothing changes."""

import pytest
import streamlit as st
from streamlit.errors import StreamlitAuthError
from streamlit.testing.v1 import AppTest
from streamlit.web.server.server_util import get_cookie_secret

from app import login
from app.tokens import literal
from tests.app.conftest import ROOT
from tests.app.seeding import seed

AUTH = {"redirect_uri": "https://lab.example.org/oauth2callback", "cookie_secret": "c" * 32, "client_id": "lab",
        "client_secret": "s", "server_metadata_url": "https://id.example.org/.well-known/openid-configuration"}
OPEN = {"auth": AUTH, "lab": {"allowed": ["*"]}}
ADA = {"is_logged_in": True, "email": "ada@example.org", "name": "Ada"}
PAGES = ("home", "foundations", "surrogate", "lessons", "maze", "cartpole", "llm", "exact", "compare", "studies",
         "playground", "runs", "help")


@pytest.fixture
def visit(lab, monkeypatch):
    """visit("runs", user, auth=…, lab=…) opens a page with these sections in secrets.toml."""
    monkeypatch.setattr(login, "find_spec", lambda name: name)  # whether Authlib is installed here does not matter

    def opened(name="home", user=None, **secrets):
        test = AppTest.from_file(str(ROOT / "app" / "navigation.py"), default_timeout=30)
        if name != "home":
            test.switch_page(f"../pages/{name}.py")
        test.secrets.update(secrets)
        test.user = user or {"is_logged_in": False}
        return test.run()
    return opened


def words(test) -> str:
    return " ".join(str(element.value) for element in (*test.title, *test.markdown, *test.caption, *test.error))


def labels(test) -> list[str]:
    return [button.label for button in test.button]


@pytest.mark.parametrize("name", PAGES)
def test_nothing_of_a_page_is_seen_before_the_login(visit, lab, name):
    run = seed(lab.store, "finished")
    test = visit(name, **OPEN)
    assert labels(test) == ["Log in"] and "Log in to use this lab." in words(test) and run not in words(test)
    assert not test.exception
    assert all(element.value.strip().startswith("<style") for element in test.get("html"))


def test_who_is_logged_in_sees_the_page_and_may_log_out(visit):
    test = visit("runs", ADA, **OPEN)
    assert "Runs" in [header.value for header in test.header]
    assert literal("ada@example.org") in words(test) and "Log out" in labels(test)


def test_without_auth_nothing_is_asked_and_nobody_named(visit):
    for secrets in ({}, {"other": {"key": "value"}}):
        test = visit("runs", {"email": "test@example.com"}, **secrets)
        assert "Runs" in [header.value for header in test.header]
        assert "Log out" not in labels(test) and literal("test@example.com") not in words(test)


def test_each_provider_has_its_button(visit):
    providers = {"google": {"client_id": "1"}, "our_own": {"client_id": "2"}}
    shared = {key: AUTH[key] for key in ("redirect_uri", "cookie_secret")}
    assert labels(visit(**{**OPEN, "auth": {**shared, **providers}})) == ["Log in with Google", "Log in with Our Own"]


@pytest.mark.parametrize(("addresses", "user", "enters"), [
    (["@example.org"], {}, True),
    (["ADA@example.org"], {}, True),
    (["@example.com", "bob@example.org"], {}, False),
    (["@example.org"], {"email": "ada@notexample.org"}, False),
    (["@example.org"], {"email": "@example.org"}, False),
    (["@example.org"], {"email": ""}, False),
    (["@example.org"], {"email": "ada@example.org@example.com"}, False),
    (["@example.org"], {"email_verified": False}, False),
    (["@example.org"], {"email_verified": "false"}, False),
    (["@example.org"], {"email_verified": "true"}, True),
    (["*"], {"email": "anybody@example.com", "email_verified": False}, True)])
def test_only_the_allowed_are_let_in(visit, addresses, user, enters):
    test = visit("runs", {**ADA, **user}, auth=AUTH, lab={"allowed": addresses})
    assert ("Runs" in [header.value for header in test.header]) is enters
    assert ("not authorised" in words(test)) is not enters and "Log out" in labels(test)


@pytest.mark.parametrize(("secrets", "says"), [
    ({"auth": {**AUTH, "cookie_secret": ""}}, "[auth] has no cookie_secret"),
    ({"auth": {"redirect_uri": "x", "cookie_secret": "y"}}, "names no provider with a client_id"),
    ({"auth": "yes"}, "auth is not a section"),
    ({"auth": AUTH, "lab": {"allowed": "@example.org"}}, "allowed in [lab] is no list"),
    ({"auth": AUTH, "lab": {"allowed": ["example.org"]}}, "allowed in [lab] is no list"),
    ({"auth": AUTH}, 'nobody is allowed: write allowed = ["ada@example.org", "@example.com"] in [lab]'),
    ({"auth": AUTH, "lab": {"allowed": []}}, "nobody is allowed"),
    ({"auth": AUTH, "lab": {"allow": ["@example.org"]}}, "[lab] has allow, which the lab does not know"),
    ({"auth": {**AUTH, "allowed": ["@example.org"]}}, "allowed is in [auth]: it belongs in [lab]"),
    ({**OPEN, "auth": {**AUTH, "google": {"client_id": "1", "allowed": ["@a.org"]}}}, "allowed is in [auth.google]"),
    ({**OPEN, "allowed": ["@example.org"]}, "allowed is in no section"),
    ({"oauth": AUTH, "lab": {"allowed": ["@example.org"]}}, "it has [lab], but no [auth]")])
def test_wrong_settings_let_nobody_in(visit, secrets, says):
    test = visit("runs", ADA, **secrets)
    assert [literal(says) in error.value and "\n" not in error.value for error in test.error] == [True]
    assert not test.header and not test.exception


def test_a_missing_package_is_a_sentence(visit, monkeypatch):
    monkeypatch.setattr(login, "find_spec", lambda name: None)
    test = visit("runs", ADA, **OPEN)
    assert ["pip install -r requirements-cluster.txt" in error.value for error in test.error] == [True]
    assert not test.header


@pytest.mark.parametrize("content", ["[auth\n", "[auth]\na" + ".a" * 1_000 + " = 1\n", None])
def test_a_file_that_cannot_be_read_lets_nobody_in(page, tmp_path, monkeypatch, content):
    """None: a file that is named by the configuration and is not there."""
    file = tmp_path / "secrets.toml"
    if content:
        file.write_text(content)
    before = st.get_option("secrets.files")
    st.secrets._reset()
    st.config.set_option("secrets.files", [str(file)], "test")
    try:
        test = page("runs")
    finally:
        st.config.set_option("secrets.files", before, st.config.ConfigOption.DEFAULT_DEFINITION)
        st.secrets._reset()
    assert ["it cannot be read" in error.value for error in test.error] == [True] and not test.header


def test_settings_that_streamlit_refuses_are_a_sentence(visit, monkeypatch):
    def refuse(provider):
        raise StreamlitAuthError(f"no server_metadata_url for {provider}")

    monkeypatch.setattr(st, "login", refuse)
    test = visit(**{**OPEN, "auth": {**AUTH, "google": {"client_id": "1"}}})
    test.button(key="login:google").click().run()
    assert not test.exception
    assert [literal("no server_metadata_url for google): correct") in error.value for error in test.error] == [True]


def test_the_button_asks_streamlit_for_the_login(visit, monkeypatch):
    asked = []
    monkeypatch.setattr(st, "login", asked.append)
    test = visit(**{**OPEN, "auth": {**AUTH, "google": {"client_id": "1"}}})
    test.button(key="login:google").click().run()
    test.button(key="login:").click().run()
    assert asked == ["google", None]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """settings(content) has Streamlit's settings be a file with this content, or None a folder, as a server starts."""
    before = st.get_option("secrets.files")
    monkeypatch.setattr(login, "_faults", [])
    st.secrets._reset()

    def put(content: bytes | None) -> None:
        file = tmp_path / "secrets.toml"
        file.mkdir() if content is None else file.write_bytes(content)
        st.config.set_option("secrets.files", [str(file)], "test")
        login.begin()
    yield put
    st.config.set_option("secrets.files", before, st.config.ConfigOption.DEFAULT_DEFINITION)
    st.secrets._reset()


@pytest.mark.parametrize(("content", "says"), [
    (b'auth="x"', "auth is not a section"), (b"\xff\xfe\x00", "it cannot be read"), (None, "it cannot be read"),
    (b"[auth", "it cannot be read"), (b"lab=7", "lab is not a section"),
    (b'[auth]\ncookie_secret=7\nredirect_uri="x"', "cookie_secret in [auth] is not a text")])
def test_settings_on_which_streamlit_breaks_let_nobody_in_and_every_page_says_why(page, settings, content, says):
    settings(content)
    assert get_cookie_secret() is not None  # what the server asks for each request, and broke on
    test = page("runs")
    assert [literal(says) in error.value for error in test.error] == [True] and not test.header and not test.exception


def test_settings_that_can_be_used_stay(page, settings):
    settings(b'[other]\nkey = "value"')
    assert st.secrets["other"]["key"] == "value" and page("runs").header
