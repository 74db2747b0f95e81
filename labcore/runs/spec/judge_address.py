"""The address of a judge as specs have it. A key or a password is refused: a spec is stored, shown and exported."""

from __future__ import annotations

from urllib.parse import urlsplit

from labcore.errors import LabError, quoted

URL = "RL_LAB_JUDGE_URL"  # the address that runs of this machine may ask
KEY = "RL_LAB_JUDGE_KEY"  # where the key of a judge is read from


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
        raise LabError(f"The judge's address {quoted(word)} is not a URL: write for example http://localhost:8000/v1.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise LabError(f"The judge's address must not hold a name, a password or a query: put the key into {KEY}, and "
                       "write the address alone, for example http://localhost:8000/v1.")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"
