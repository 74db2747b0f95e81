"""A job's spec, its files and what becomes of it, without processes."""

import json
import os
import time
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.runs import jobs
from labcore.workers.job_queue import AT_ONCE, JobQueue
from tests.words import says
from tests.workers import fake_jobs


@pytest.fixture(autouse=True)
def known(monkeypatch, tmp_path):
    monkeypatch.setattr(jobs, "JOBS", dict(jobs.JOBS))
    monkeypatch.setattr(fake_jobs, "JOBS", jobs.JOBS)
    monkeypatch.setenv("FAKE_COUNT", str(tmp_path / "count"))
    fake_jobs.install()


def done(tmp_path) -> int:
    return len((tmp_path / "count").read_text())


TOTAL = {"job": "total", "numbers": [1, 2, 3]}


def test_the_same_question_is_the_same_job_and_is_done_once(tmp_path):
    assert jobs.compute(TOTAL) == {"sum": 6}
    assert jobs.compute({"numbers": [1, 2, 3], "job": "total"}) == {"sum": 6}
    assert done(tmp_path) == 1
    assert jobs.compute({**TOTAL, "numbers": [1, 2, 4]}) == {"sum": 7}
    assert done(tmp_path) == 2


def test_another_version_of_the_lab_computes_anew(tmp_path, monkeypatch):
    jobs.compute(TOTAL)
    monkeypatch.setattr(jobs, "VERSION", jobs.VERSION + 1)
    jobs.compute(TOTAL)
    assert done(tmp_path) == 2


def test_a_job_of_a_worker_is_found_by_its_id(tmp_path):
    job = jobs.put(TOTAL)
    assert jobs.outcome(job) is None and not jobs.ended(job)
    jobs.perform(job)
    jobs.perform(job)
    assert jobs.outcome(job) == jobs.Outcome({"sum": 6}) and done(tmp_path) == 1
    jobs.forget(job)
    assert jobs.outcome(job) is None


def test_a_fault_of_the_user_is_its_sentence_and_can_be_tried_again():
    job = jobs.put({"job": "refuse"})
    jobs.perform(job)
    assert jobs.outcome(job) == jobs.Outcome(None, "The number 13 is not wanted here: give another one.")
    with pytest.raises(LabError, match="13 is not wanted"):
        jobs.compute({"job": "refuse"})


def test_a_fault_of_the_lab_is_one_sentence_and_the_rest_is_in_the_log():
    job = jobs.put({"job": "broken", "by": 0})
    jobs.perform(job)
    found = jobs.outcome(job)
    assert found.result is None and "ZeroDivisionError: division by zero" in found.error
    assert str(jobs.log_file(job)) in found.error and "Traceback" in jobs.log_file(job).read_text()


def test_a_success_takes_an_old_fault_away():
    job = jobs.put(TOTAL)
    jobs.fail(job, "It was stopped.")
    assert jobs.compute(TOTAL) == {"sum": 6}
    assert jobs.outcome(job).error == "" and not (jobs.folder(job) / "error.json").exists()


def test_a_job_that_there_is_not():
    with pytest.raises(LabError, match=r"no job 'totle': did you mean 'total'"):
        jobs.compute({"job": "totle"})


def test_what_is_no_json_is_not_kept():
    """A NaN would be read by Python and by no browser."""
    job = jobs.put({"job": "total", "numbers": [float("nan")]})
    jobs.perform(job)
    assert "not JSON compliant" in jobs.outcome(job).error


def test_old_results_go_and_what_waits_stays(monkeypatch):
    monkeypatch.setattr(jobs, "KEEP", 3)
    waiting = jobs.put({"job": "total", "numbers": [99]})
    made = []
    for number in range(5):
        made.append(jobs.put({"job": "total", "numbers": [number]}))
        jobs.perform(made[-1])
        for path in jobs.folder(made[-1]).iterdir():
            os.utime(path, (number, number))
    jobs.prune()
    assert [jobs.ended(job) for job in made] == [False, False, True, True, True]
    assert (jobs.folder(waiting) / "spec.json").exists()
    monkeypatch.setattr(jobs, "KEEP_BYTES", 1)
    jobs.prune()
    assert not any(jobs.ended(job) for job in made)


def test_a_job_that_was_left_undone_goes_after_a_day():
    old, young = (jobs.put({"job": "total", "numbers": [number]}) for number in (1, 2))
    for path in jobs.folder(old).iterdir():
        os.utime(path, (time.time() - 90_000,) * 2)
    jobs.prune()
    assert not jobs.folder(old).exists() and jobs.folder(young).exists()


@pytest.mark.parametrize("when", ["after its outcome was seen", "while it is looked through"])
def test_what_another_process_prunes_meanwhile_is_passed_over(monkeypatch, when):
    made = [jobs.put({"job": "total", "numbers": [number]}) for number in range(3)]
    for job in made:
        jobs.perform(job)
    if when == "after its outcome was seen":
        monkeypatch.setattr(jobs, "ended", lambda job: bool(jobs.forget(made[1])) or job in made)
    else:
        glob = Path.glob

        def vanishing(path, pattern):
            found = list(glob(path, pattern))
            jobs.forget(made[1])
            return found
        monkeypatch.setattr(Path, "glob", vanishing)
    monkeypatch.setattr(jobs, "KEEP", 0)
    jobs.prune()
    assert not any(jobs.folder(job).exists() for job in made)


def test_a_job_whose_process_cannot_be_started_says_so_and_the_next_is_tried():
    tried = []

    def start(job):
        tried.append(job)
        if job == "a":
            raise OSError(11, "Resource temporarily unavailable")
        return 7
    job_queue = JobQueue(start)
    job_queue.hear("job b")
    job_queue.hear("job a")
    jobs.folder("a").mkdir(parents=True)
    job_queue.fill()
    assert tried == ["a", "b"] and job_queue.going == {7: "b"}
    assert "No process could be started for this (Resource temporarily unavailable)" in jobs.outcome("a").error


def test_what_a_process_said_goes_with_it():
    """Be its job done, be it dead, or begun anew after its lab has died."""
    job = jobs.put(TOTAL)
    jobs.say(job, "sampling 3 of 8 tokens")
    job_queue = JobQueue(lambda job: 1)
    job_queue.hear(f"job {job}")
    assert jobs.doing(job) == ""
    job_queue.fill()
    jobs.say(job, "sampling 3 of 8 tokens")
    job_queue.note(1, -9)
    assert jobs.outcome(job).error and jobs.doing(job) == ""
    jobs.forget(job)
    job = jobs.put(TOTAL)
    jobs.say(job, "sampling 8 of 8 tokens")
    jobs.perform(job)
    assert jobs.outcome(job).result and jobs.doing(job) == ""


def test_the_desk_takes_the_newest_first_and_no_question_twice():
    started = []
    job_queue = JobQueue(lambda job: started.append(job) or 100 + len(started))
    for number in range(AT_ONCE):
        job_queue.hear(f"job first{number}\n")
    job_queue.fill()
    for name in ("a", "b", "b", "first0"):
        job_queue.hear(f"job {name}")
    job_queue.hear("wake")
    assert job_queue.waiting == ["a", "b"] and len(job_queue.going) == AT_ONCE
    job_queue.fill()
    assert len(started) == AT_ONCE
    job = job_queue.going[101]
    job_queue.note(101, -9)
    job_queue.fill()
    assert started[-1] == "b"
    assert says(jobs.outcome(job).error, "signal 9", "memory")
    job_queue.hear("cancel a")
    assert job_queue.waiting == [] and "stopped before it had begun" in jobs.outcome("a").error
    job_queue.hear("job a")  # its outcome is there
    assert job_queue.waiting == []


def test_downloads_keep_no_other_job_waiting():
    started = []
    job_queue = JobQueue(lambda job: started.append(job) or 100 + len(started))
    downloads = [jobs.put({"job": "download", "name": f"org/{place}"}) for place in range(AT_ONCE + 1)]
    looks = [jobs.put({"job": "data_preview", "spec": str(place)}) for place in range(AT_ONCE + 1)]
    for job in (*looks, *downloads):
        job_queue.hear(f"job {job}")
    job_queue.fill()
    assert set(started) == {*downloads[1:], *looks[1:]} and job_queue.waiting == [looks[0], downloads[0]]
    job_queue.note(101 + started.index(looks[1]), 0)
    job_queue.fill()
    assert job_queue.waiting == [downloads[0]], "its place is for another job that computes"


def test_a_disk_that_is_full_does_not_take_the_runs_along(monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")
    job_queue = JobQueue(lambda job: 1)
    job_queue.hear("job x")
    job_queue.fill()
    monkeypatch.setattr(jobs, "fail", full)
    job_queue.note(1, 1)
    assert "No space left" in capsys.readouterr().err and job_queue.going == {}


def test_results_are_json_on_the_disk():
    jobs.compute(TOTAL)
    assert json.loads((jobs.folder(jobs.job_id(TOTAL)) / "result.json").read_text()) == {"sum": 6}
