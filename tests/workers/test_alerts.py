"""Alerts: what the doctor finds reaches real programs, a real server and a file, once, and never harms the run."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from labcore.analysis.doctor.finding import Finding
from labcore.errors import LabError
from labcore.watch.converting import spool
from labcore.workers import alerts
from labcore.workers.worker import drive
from tests.runs import fake
from tests.words import says
from tests.workers.test_training_doctor import Breaks, Ill

PROGRAM = """
import json, os, sys
given = json.load(sys.stdin)
variables = {key: value for key, value in os.environ.items() if key.startswith("RL_LAB_ALERT_")}
with open(sys.argv[1], "a") as file:
    print(json.dumps([sys.argv[2:], given, variables]), file=file)
"""
FOUND = Finding("Entropy collapsed", "0.9 → 0.01", "Raise the temperature.", rule="entropy", severity="warning")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(alerts, "FIRST_WAIT", 0.01)


@pytest.fixture
def server():
    """A server that keeps what it is sent. `codes` are its next answers, then always the last of them."""
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.got.append((self.path, json.loads(body)))
            codes = self.server.codes
            self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        found.got, found.codes, found.url = [], [200], f"http://127.0.0.1:{found.server_port}/services/geheim"
        threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def program(tmp_path):
    """The words of a command that appends what it is given to a file, and a function that reads that."""
    script, out = tmp_path / "program.py", tmp_path / "a file; rm -rf $HOME"
    script.write_text(PROGRAM)
    return (f"command {sys.executable} {script} '{out}' 'two words' '$HOME;'",
            lambda: [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else [])


def stopped_at(store, run_id, step):
    def stop(_run, record, _seconds):
        if record.step == step:
            store.ask(run_id, "stop")
    return stop


def said(store, run_id):
    return [event.payload for event in store.events_after(run_id) if event.kind == alerts.EVENT]


def test_each_receiver_gets_a_finding_once_even_if_the_run_is_resumed(store, monkeypatch, server, program,
                                                                      tmp_path):
    words, given = program
    lines = tmp_path / "alerts.jsonl"
    monkeypatch.setenv("RL_LAB_ALERTS", f"{words}; webhook {server.url}; file {lines}; problem webhook {server.url}/2")
    run_id = store.create(fake.grpo(100))
    assert drive(store, run_id, start=Ill.start, on_record=stopped_at(store, run_id, 25)) == "stopped"
    store.requeue(run_id)
    assert drive(store, run_id, start=Ill.start) == "finished"
    [[arguments, received, variables]], [(path, posted)] = given(), server.got
    assert arguments == ["two words", "$HOME;"] and path == "/services/geheim"
    assert received == posted == json.loads(lines.read_text())
    assert (posted["run"], posted["step"], posted["rule"], posted["severity"]) == (
        run_id, 15, "zero_variance", "warning")
    assert posted["text"].startswith("GRPO sort #1, step 15: warning: ") and posted["text"].endswith(posted["fix"])
    assert variables["RL_LAB_ALERT_TEXT"] == posted["text"] and variables["RL_LAB_ALERT_STEP"] == "15"
    events = said(store, run_id)
    assert [each["sent"] for each in events] == [True] * 3 and "geheim" not in json.dumps(events)
    assert str(tmp_path) not in json.dumps(events)  # runs are exported with their events


def test_a_finding_that_was_not_sent_is_sent_when_the_run_is_resumed(store, monkeypatch, server):
    run_id = store.create(fake.grpo(30))
    assert drive(store, run_id, start=Ill.start, on_record=stopped_at(store, run_id, 20)) == "stopped"
    monkeypatch.setenv("RL_LAB_ALERTS", f"webhook {server.url}")
    store.requeue(run_id)
    assert drive(store, run_id, start=Ill.start) == "finished"
    assert [posted["step"] for _, posted in server.got] == [15]  # where it began, before there was a receiver


def test_the_alert_of_a_diverged_run_is_sent_before_its_process_ends(store, monkeypatch, server):
    server.codes = [503, 503, 200]
    monkeypatch.setenv("RL_LAB_ALERTS", f"problem webhook {server.url}")
    run_id = store.create(fake.grpo(30, beta=0.0))
    assert drive(store, run_id, start=Breaks.start) == "diverged"
    assert [posted["rule"] for _, posted in server.got] == ["not_finite"] * 3  # tried again until it was taken
    assert [each["sent"] for each in said(store, run_id)] == [True]


@pytest.mark.parametrize(("setting", "reason"), [
    ("webhook http://127.0.0.1:9/hook", "the address did not answer, ConnectError"),
    ("command /there/is/none", "No such file or directory"),
    (f"command {sys.executable} -c 'import sys; sys.exit(\"no display\")'", "it ended with code 1 no display"),
    ("file /there/is/none", "No such file or directory"),
])
def test_a_failing_receiver_is_reported_once_and_the_run_continues(store, monkeypatch, setting, reason):
    monkeypatch.setenv("RL_LAB_ALERTS", setting)
    run_id = store.create(fake.grpo(30))
    assert drive(store, run_id, start=Ill.start, on_record=stopped_at(store, run_id, 20)) == "stopped"
    store.requeue(run_id)  # it is tried again, since the finding holds
    assert drive(store, run_id, start=Ill.start) == "finished"
    [failed] = said(store, run_id)
    assert not failed["sent"] and reason in failed["text"] and "RL_LAB_ALERTS" in failed["text"]


def test_a_redirect_is_not_followed_and_a_refusal_not_repeated(server):
    server.codes = [307]
    with pytest.raises(LabError, match="HTTP 307"):
        alerts.SEND["webhook"]([server.url], {"text": "x"})
    assert len(server.got) == 1


def test_a_program_that_hangs_is_killed_with_its_children_and_delays_no_step(store, monkeypatch, tmp_path):
    monkeypatch.setattr(alerts, "COMMAND_SECONDS", 0.5)
    late = tmp_path / "late"
    monkeypatch.setenv("RL_LAB_ALERTS", f"command sh -c 'sleep 1; touch {late}'")
    run_id = store.create(fake.grpo(60))
    begun, seen = time.monotonic(), []
    assert drive(store, run_id, start=Ill.start, on_record=lambda *_: seen.append(time.monotonic() - begun)) == (
        "finished")
    [failed] = said(store, run_id)
    assert "took over 0.5 s" in failed["text"] and len(seen) == 60
    event = next(event for event in store.events_after(run_id) if event.kind == "finished")
    assert store.run(run_id).ended - event.time < 0.5  # the run itself has ended meanwhile
    time.sleep(0.7)
    assert not late.exists()


def test_a_watched_run_is_asked_to_stop_only_if_the_setting_says_so(store, monkeypatch):
    run_id = store.create(fake.grpo(30))
    folder = spool.folder_of("theirs")
    for setting, severity, asked in (("file /dev/null", "problem", False), ("stop", "warning", False),
                                     ("stop", "problem", True)):
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("RL_LAB_ALERTS", setting)
        alerts.Alerts(store, store.run(run_id), [], "theirs").take(7, Finding(
            "Reward hacking", "gold fell", "Raise β.", rule="hacking", severity=severity))
        alerts.wait()
        assert (folder / spool.ASKED).exists() == asked
    asked = spool.asked(folder)
    assert asked["stop"] is True and says(asked["why"], "doctor", "step 7", "Reward hacking", "gold fell")


def test_the_lab_s_own_runs_are_never_asked_to_stop(store, monkeypatch):
    monkeypatch.setenv("RL_LAB_ALERTS", "warning stop")
    run_id = store.create(fake.grpo(30))
    alerts.Alerts(store, store.run(run_id), []).take(7, FOUND)
    alerts.wait()
    assert not spool.root().exists()


@pytest.mark.parametrize(("setting", "fault"), [
    ("mail me@example.org", "begins with 'mail'"), ("problem", "begins with ''"), ("command", "needs a program"),
    ("webhook ftp://host/x", "begins with http"), ("webhook https://[bad", "begins with http"),
    ("webhook http://a http://b", "one address"), ("file alerts.jsonl", "absolute path"), ("stop now", "no words"),
    ("command 'open", "close every quote"), ("webhook http://host:99999/", "begins with http"),
])
def test_an_invalid_setting_is_reported_once_and_affects_no_run(store, monkeypatch, setting, fault):
    with pytest.raises(LabError, match="RL_LAB_ALERTS"):
        alerts.receivers(setting)
    monkeypatch.setenv("RL_LAB_ALERTS", setting)
    assert fault in alerts.shown()
    run_id = store.create(fake.grpo(5))
    drive(store, run_id, start=Ill.start, on_record=stopped_at(store, run_id, 2))
    store.requeue(run_id)
    assert drive(store, run_id, start=Ill.start) == "finished"
    [event] = said(store, run_id)
    assert fault in event["text"]


def test_the_list_of_settings_shows_no_key(monkeypatch):
    monkeypatch.setenv("RL_LAB_ALERTS", "webhook https://me:geheim@hooks.example.com/services/geheim?key=geheim; "
                                        "note command notify-send geheim")
    assert says(alerts.shown(), "webhook hooks.example.com", "problem and warning", "command notify-send",
                "problem and warning and note")


def test_no_alerts_need_no_thread(store, monkeypatch):
    monkeypatch.delenv("RL_LAB_ALERTS", raising=False)
    run_id = store.create(fake.grpo(30))
    assert drive(store, run_id, start=Ill.start) == "finished" and said(store, run_id) == []
    assert alerts.THREAD not in [thread.name for thread in threading.enumerate()]
