"""The login: with [auth] in Streamlit's secrets.toml everybody has to log in first (OIDC). Without it
nothing is asked. docs/cluster.md says how it is set up.

If the settings have any fault, nobody is authorised.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit import config
from streamlit.errors import StreamlitAuthError, StreamlitSecretNotFoundError

from app.serving import has_room
from app.tokens import literal
from labcore.errors import LabError, first_line
from labcore.runs.files.paths import read_only
from labcore.runs.files.untrusted import read, toml_of

CSS = "<style>.st-key-login{padding-top:18vh;text-align:center}</style>"
EVERYBODY = "*"  # in `allowed`: whom the provider knows
_faults: list[LabError] = []  # what was wrong with the settings when the server started
_SHARED = {"redirect_uri", "cookie_secret"}  # of all providers


def begin() -> None:
    """Check the settings before the server starts. If Streamlit would fail on them, it gets none, and every page
    refuses all users.
    """
    try:
        auth = _section("auth")
        _section("lab")
        if wrong := next((key for key in sorted(_SHARED) if not isinstance((auth or {}).get(key, ""), str)), None):
            raise _wrong(f"{wrong} in [auth] is not a text")
    except LabError as error:
        _faults[:] = [error]
        config.set_option("secrets.files", [], "app/login.py")
        st.secrets._reset()  # what it has read of them


def passed() -> bool:
    """Return True if the page may be shown; otherwise show the login in its place, or a message that all places are
    taken. Raises LabError if the settings of the login or of the server cannot be used."""
    for fault in _faults:
        raise fault
    if not has_room():
        return False
    auth = _section("auth")
    if auth is None:
        if _section("lab") is not None:
            raise _wrong("it has [lab], but no [auth]")
        return True
    _check(auth)
    addresses = _allowed(auth)
    if not st.user.get("is_logged_in"):
        _ask(auth)
        return False
    if not allowed(st.user, addresses):
        _refuse()
        return False
    return True


def above_the_page() -> None:
    """Show who is logged in, and that a lab is shared for reading; nothing in a lab of one's own."""
    name = _name() if _section("auth") is not None else ""
    if not name and not read_only():
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="who"):
        said = ":material/visibility: **Shared for reading:** nothing can be started or changed here."
        st.caption(said if read_only() else "", width="stretch")
        if name:
            st.caption(f":material/person: {literal(name)}", width="content")
            st.button("Log out", key="who:out", type="tertiary", on_click=st.logout)


def allowed(user: Mapping[str, Any], addresses: list[str]) -> bool:
    """Return True if the e-mail address of a user is one of `addresses` or of a domain in them.

    An entry "*" authorises every user.

    >>> allowed({"email": "Ada@Example.org"}, ["@example.org"]), allowed({"email": "ada@example.com"}, ["@example.org"])
    (True, False)
    """
    if EVERYBODY in addresses:
        return True
    verified = user.get("email_verified")  # not every provider says so, and some say it as a text
    if verified is not None and str(verified).casefold() != "true":
        return False
    address = str(user.get("email") or "").strip().casefold()
    name, at, domain = address.rpartition("@")
    return bool(name and at) and any(address == each or f"@{domain}" == each for each in addresses)


def _ask(auth: Mapping[str, Any]) -> None:
    with st.container(horizontal_alignment="center", key="login"):
        st.html(CSS)
        st.title("RL Visual Lab", anchor=False, width="content")
        st.markdown(f"Log in to {'see the runs of' if read_only() else 'use'} this lab.", width="content")
        for provider in _providers(auth):
            label = f"Log in with {provider.replace('_', ' ').title()}" if provider else "Log in"
            if st.button(label, icon=":material/login:", key=f"login:{provider}", type="primary"):
                try:
                    st.login(provider or None)
                except StreamlitAuthError as error:
                    raise _wrong(f"[auth] cannot be used: {first_line(error)}") from error


def _refuse() -> None:
    with st.container(horizontal_alignment="center", key="login"):
        st.html(CSS)
        st.title("RL Visual Lab", anchor=False, width="content")
        st.markdown(f"You are logged in as {literal(_name())}, who is not authorised. Ask the people who run this "
                    f"lab, or log in with another account.", width="content")
        st.button("Log out", icon=":material/logout:", key="who:out", type="primary", on_click=st.logout)


def _name() -> str:
    return str(st.user.get("email") or st.user.get("name") or "someone without a name")


def _providers(auth: Mapping[str, Any]) -> list[str]:
    """The names of the providers; "" is the one that [auth] itself describes."""
    return [*([""] if "client_id" in auth else []), *(key for key, each in auth.items() if isinstance(each, Mapping)
                                                      and "client_id" in each)]


def _check(auth: Mapping[str, Any]) -> None:
    if missing := sorted(key for key in _SHARED if not auth.get(key)):
        raise _wrong(f"[auth] has no {missing[0]}")
    if not _providers(auth):
        raise _wrong("[auth] names no provider with a client_id")
    if find_spec("authlib") is None or find_spec("httpx") is None:
        raise LabError("The login needs Authlib and httpx: pip install -r requirements-cluster.txt, or remove [auth] "
                       "from secrets.toml.")


def _allowed(auth: Mapping[str, Any]) -> list[str]:
    """The addresses and domains that are let in, in lower case."""
    lab = _section("lab") or {}
    providers = {f"[auth.{key}]": auth[key] for key in _providers(auth) if key}
    for place, settings in {"no section": st.secrets, "[auth]": auth, **providers}.items():
        if "allowed" in settings:
            raise _wrong(f"allowed is in {place}: it belongs in [lab]")
    if strange := sorted(set(lab) - {"allowed"}):
        raise _wrong(f"[lab] has {strange[0]}, which the lab does not know: only allowed")
    said = lab.get("allowed")
    if not said:
        raise _wrong('nobody is allowed: write allowed = ["ada@example.org", "@example.com"] in [lab], or '
                     f'["{EVERYBODY}"] for every user of the provider (with Google, anybody with an account)')
    if not isinstance(said, list) or not all(isinstance(each, str) and (each == EVERYBODY or "@" in each)
                                             for each in said):
        raise _wrong('allowed in [lab] is no list such as ["ada@example.org", "@example.com"]')
    return [each.strip().casefold() for each in said]


def _section(name: str) -> Mapping[str, Any] | None:
    """A section of secrets.toml; None where there is none, or no such file."""
    for file in map(Path, config.get_option("secrets.files")):
        if file.is_file():
            _check_file(file, file.stat().st_mtime_ns)
    try:
        found = st.secrets.get(name)
    except StreamlitSecretNotFoundError as error:
        files = config.get_option("secrets.files")
        if not config.is_manually_set("secrets.files") and not any(map(os.path.exists, files)):
            return None
        raise _wrong(f"it cannot be read: {first_line(error)}") from error
    except (OSError, UnicodeDecodeError) as error:  # another owner's, or no text
        raise _wrong(f"it cannot be read: {first_line(error)}") from error
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise _wrong(f"{name} is not a section")
    return found


@lru_cache
def _check_file(file: Path, written: int) -> None:
    """Raise LabError where a file is no TOML, or one that Streamlit would take gigabytes to read."""
    try:
        toml_of(read(file).decode())
    except (LabError, ValueError) as error:
        raise _wrong(f"it cannot be read: {first_line(error)}") from error


def _wrong(what: str) -> LabError:
    return LabError(f"The login is not set up ({what.rstrip('.')}): correct secrets.toml, then start the lab again.")
