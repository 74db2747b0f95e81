"""The math verifier against verdicts given by hand, and that no completion keeps it for ever."""

import threading
import time

import pytest

from labcore.errors import LabError
from labcore.tasks import verifiers
from labcore.tasks.verifiers import maths
from tests.every import every


@every(("completion", "answer", "right"), [
    (r"\frac{3}{4}", "3/4", True), ("0.75", "3/4", True), ("3/4", r"\frac34", True),
    ("6/8", r"\boxed{\frac{3}{4}}", True),
    (r"The answer is $\frac{3}{4}$.", "0.75", True), (r"\boxed{42}. I checked 3 times", "42", True),
    ("$x^2+1$", "1+x^2", True), (r"\boxed{x=3}", "3", True), ("(1,2)", "$(1,2)$", True), ("50%", "0.5", True),
    ("#### 18", "9 * 2 = 18\n#### 18", True), ("yes ", "yes", True), (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}", True),
    ("1,234", "1234", True), (r"2\,000", "2000", True), ("1{,}000", "1000", True),
    ("so it is 1/4", "3/4", False), ("4", "3/4", False), ("2", r"\sqrt{2}", False), (r"\sqrt{2}", "2", False),
    ("(2,1)", "$(1,2)$", False), ("2:45", "3:45", False), ("", "", False), ("", "3", False), ("no", "yes", False),
])
def test_maths(completion, answer, right):
    assert maths(completion, answer) is right


def test_a_completion_that_would_compute_for_ever_is_wrong_and_the_next_is_judged(monkeypatch):
    monkeypatch.setattr(verifiers, "SECONDS", 0.5)
    assert maths("3/4", "0.75")
    started = time.monotonic()
    assert not maths("9^{9^{9^9}}", "3") and time.monotonic() - started < 5
    assert verifiers._started is None, "it is gone"
    monkeypatch.setattr(verifiers, "SECONDS", 20.0)
    assert maths("3/4", "0.75")


def test_threads_ask_one_after_another():
    said = {}
    threads = [threading.Thread(target=lambda n=n: said.update({n: maths(f"{n}/4", f"{n / 4}")})) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == dict.fromkeys(range(1, 9), True)


def test_without_the_library_it_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.setattr(verifiers.math_equal, "__file__", str(tmp_path / "broken.py"))
    monkeypatch.setattr(verifiers, "_started", None)
    with pytest.raises(LabError, match=r"did not start .*No module named math_verify.*requirements.txt"):
        maths("1", "2")
