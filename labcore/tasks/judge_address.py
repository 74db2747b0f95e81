"""The address of a judge, and whether this machine's runs may send answers to it.

No run asks a judge by its spec alone, which may be another person's: the machine must name the same URL, in
RL_LAB_JUDGE_URL or once by --judge on its command line.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from labcore.errors import LabError, quoted
from labcore.files import atomic
from labcore.files.paths import check_writable, made
from labcore.tasks import own_reward

URL, KEY = "RL_LAB_JUDGE_URL", "RL_LAB_JUDGE_KEY"
ALLOWED = "judges.txt"  # in the folder of reward files: URLs that the command line has named


def address(word: str) -> str:
    """The URL of a judge as specs have it: without the end of its path that every request has.

    Raises:
        LabError: it is no such URL, or holds a password, which a spec must not.

    >>> address("http://localhost:8000"), address("https://api.openai.com/v1/chat/completions")
    ('http://localhost:8000/v1', 'https://api.openai.com/v1')
    """
    try:
        parts = urlsplit(word.strip())
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
        usable = usable and all(letter.isprintable() and not letter.isspace() for letter in word.strip())
    except ValueError:
        usable = False
    if not usable:
        raise LabError(f"The judge's address {quoted(word)} is no URL: write for example http://localhost:8000/v1.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise LabError(f"The judge's address must not hold a name, a password or a query: put the key into {KEY}, and "
                       "write the address alone, for example http://localhost:8000/v1.")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def allow(word: str) -> str:
    """Have this machine's runs ask the judge at a URL, which somebody typed here. Returns its `address`."""
    check_writable()
    found = address(word)
    if found not in _allowed():
        atomic.write_text(made(own_reward.root()) / ALLOWED, "\n".join([*_written(), found, ""]))
    return found


def check(url: str) -> None:
    """Raises LabError where this machine has not named the URL."""
    if address(url) not in _allowed():
        raise LabError(f"The run would send its completions to {address(url)}, which this machine does not allow as a "
                       f"judge: set {URL} to that address before you start the lab, or start a run with --judge on the "
                       "command line once.")


def _allowed() -> list[str]:
    own = os.environ.get(URL, "").strip()
    return [*([address(own)] if own else []), *_written()]


def _written() -> list[str]:
    file = own_reward.root() / ALLOWED
    return file.read_text("utf-8").split() if file.is_file() else []
