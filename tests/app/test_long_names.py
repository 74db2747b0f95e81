"""A link with a name that no disk takes opens its page as any link with a wrong name."""

import pytest

LONG = "x" * 300


@pytest.mark.parametrize(("name", "query"), [
    ("llm", {"model": LONG}), ("llm", {"run": LONG}), ("compare", {"runs": f"imported-{LONG}"}),
    ("compare", {"batch": LONG}), ("playground", {"runs": f"base:{LONG}"}), ("playground", {"runs": f"{LONG},a\nb"})])
def test_a_link_with_a_name_that_cannot_be(page, name, query):
    page(name, **query)
