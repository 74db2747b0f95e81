"""A link with a name that no disk takes opens its page as any link with a wrong name."""

import pytest

from labcore.files.paths import imports

LONG = "x" * 300


@pytest.mark.parametrize(("name", "query"), [
    ("llm", {"model": LONG}), ("llm", {"run": LONG}), ("compare", {"runs": f"imported-{LONG}"}),
    ("compare", {"batch": LONG}), ("playground", {"runs": f"base:{LONG}"}), ("playground", {"runs": f"{LONG},a\nb"})])
def test_a_link_with_a_name_that_cannot_be(page, grpo, name, query):
    imports().mkdir()  # below a folder that is not there no disk looks at the name
    page(name, **query)
