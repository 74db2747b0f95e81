"""Values and texts that nobody means, for hypothesis to combine; and what an answer to them must be."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from labcore.errors import LabError

few = settings(max_examples=25, deadline=None, derandomize=True, database=None)
fewer = settings(few, max_examples=8)  # for tests that repeat for every row

NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from([10**400, -10**4000, 2**63, 1e308, -0.0, 5e-324]))
WORDS = st.one_of(st.text(max_size=20), st.sampled_from([
    "nan", "inf", "-inf", "1e999", "9" * 5000, "x" * 5000, "", " ", "\0", "\n", "\ud800", "\u202e", "true", "0x10",
    "1_0", "٣", "None", "[]", "../../x", "/dev/zero", "=1+1", "<b>", "%s", "{}", "~", "a,b,,", ",", "@3", "base:",
    "tiny@"]))
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
VALUES = st.recursive(LEAVES, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)), max_leaves=6)
JSON = VALUES.map(json.dumps)
BYTES = st.one_of(st.binary(max_size=60), JSON.map(lambda text: text.encode("utf-8", "surrogatepass")),
                  st.sampled_from([b"[" * 200_000, b'{"a":' * 5000, b"", b"\xff\xfe", b"null", b"[]", b"{}",
                                   b"1" * 5000, b'"\\ud800"', b"\0" * 100]))


def answered(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What `call` returns; None where it refuses in one short sentence of the lab's own."""
    try:
        return call(*given, **named)
    except LabError as error:
        sentence = str(error)
        assert sentence and len(sentence.splitlines()) == 1 and len(sentence) < 4000, sentence
        sentence.encode()
        return None
