"""A judge's address in a spec: wherever it is typed, no key or password gets into a run."""

import pytest

from labcore.errors import LabError
from labcore.runs.spec.run_spec import make, with_knob


@pytest.mark.parametrize("url", ["https://me:sk-1@a.b/v1", "https://sk-1@a.b", "https://a.b/v1?key=sk-1", "nowhere",
                                 "https://a.b/v1#sk-1", "file:///etc/passwd"])
@pytest.mark.parametrize("source", ["judge", "verifier"])
def test_a_run_is_not_made_with_an_address_that_is_none_or_holds_a_key(url, source):
    with pytest.raises(LabError, match="The judge's address"):
        make(algorithm_key="grpo", task_key="sort",
             knobs={"reward_source": source, "judge_url": url, "judge_model": "m"})


def test_an_address_is_kept_as_it_was_typed():
    spec = make(algorithm_key="grpo", task_key="sort",
                knobs={"reward_source": "judge", "judge_url": "http://localhost:8000", "judge_model": "m"})
    assert with_knob(spec, "beta", 0.1).knobs["judge_url"] == "http://localhost:8000"
