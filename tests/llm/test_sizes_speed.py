"""The speed of products by a layer's weights, measured here."""

from labcore.llm import sizes
from labcore.runs import jobs
from labcore.runs.spec import activity


def test_more_rows_and_a_larger_head_take_longer(monkeypatch):
    monkeypatch.setattr(sizes, "CACHES", 2**20)
    monkeypatch.setattr(sizes, "SECONDS", 0.002)
    asked = {"job": "speed", "hidden": 128, "queries": 128, "keys": 64, "inner": 256, "vocabulary": 8192, "threads": 1,
             "device": "cpu", "dtype": "fp32", "host": "here", "made": ""}
    said = list[str]()
    with activity.listening(lambda words, done, total: said.append(words)):
        found = jobs.do(asked)
    assert found["rows"] == list(sizes.ROWS) and len(found["layer"]) == len(found["head"]) == len(sizes.ROWS)
    assert said[0].startswith("measuring the speed of this machine with 1 row")
    assert all(seconds > 0 for seconds in (*found["layer"], *found["head"]))
    assert found["head"][-1] > found["head"][0], "256 rows take longer than one"
    assert found["head"][-1] > found["layer"][-1], "1 M weights take longer than 0.2 M"
