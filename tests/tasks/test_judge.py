"""A judge behind a URL: what is sent, what replies mean, and what happens where it is slow, busy or talks nonsense."""

import json
import math
import threading
import time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import JUDGEMENTS, home
from labcore.runs.spec.activity import listening
from labcore.tasks import judge
from labcore.tasks.judge import Judge, address, allow
from labcore.tasks.task import Problem, Turn
from tests.llm.tools import records, session

PROBLEMS = [Problem("2+2?", "4"), Problem("3+3?", "6")]
TEXTS = ["4", "five"]


class Server(ThreadingHTTPServer):
    """Replies to a text by `said`; `first` are statuses, with headers, that a text gets before that."""

    daemon_threads = True

    def __init__(self, said=lambda text: "7", first=(), seconds=0.0, meet=1):
        super().__init__(("127.0.0.1", 0), Handler)
        self.said, self.first, self.seconds = said, list(first), seconds
        self.meeting = threading.Barrier(meet)  # of requests that wait for each other
        self.asked, self.bodies, self.keys = Counter(), [], set()
        self.now = self.most = 0
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][1]["content"].rpartition("<answer>\n")[2].removesuffix("\n</answer>")
        with self.server.lock:
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
            at, self.server.asked[text] = self.server.asked[text], self.server.asked[text] + 1
            self.server.bodies.append((self.path, body))
            self.server.keys.add(self.headers.get("Authorization"))
        self.server.meeting.wait(60)
        time.sleep(self.server.seconds)
        status, headers = self.server.first[at] if at < len(self.server.first) else (200, {})
        said = self.server.said(text)
        content = {"choices": [{"message": {"content": said}}]} if status == 200 else {"error": {"message": said}}
        with self.server.lock:
            self.server.now -= 1
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    """Starts servers, each of which this machine may ask; nobody waits long between two tries."""
    monkeypatch.setattr(judge, "FIRST_WAIT", 0.01)
    started = []

    def start(*given, **named):
        server = Server(*given, **named)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        monkeypatch.setenv("RL_LAB_JUDGE_URL", server.url)
        return server

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_a_grade_is_a_reward_and_the_judge_sees_all_that_it_needs(serve, monkeypatch):
    monkeypatch.setenv("RL_LAB_JUDGE_KEY", "sk-secret")
    server = serve(lambda text: "10" if text == "4" else "Score: 2.5/10")
    turns = (Turn("system", "Be brief."), Turn("user", "2+2?"))
    asked = [Problem("2+2?", "4", turns=turns), Problem("3+3?", "")]
    assert Judge.at(server.url, "grader", "Is it right?").scores(asked, TEXTS) == [1.0, 0.25]
    (path, body), (_, other) = sorted(server.bodies, key=lambda pair: "five" in str(pair))
    assert path == "/v1/chat/completions" and body["model"] == "grader" and server.keys == {"Bearer sk-secret"}
    assert "Is it right?" in body["messages"][0]["content"]
    assert body["messages"][1]["content"] == (
        "<question>\nsystem: Be brief.\n\nuser: 2+2?\n</question>\n\n"
        "<right_answer>\n4\n</right_answer>\n\n<answer>\n4\n</answer>")
    assert "right_answer" not in other["messages"][1]["content"]
    assert b"sk-secret" not in (home() / JUDGEMENTS).read_bytes()


def test_no_answer_is_judged_twice(serve):
    """Neither within a batch nor later, by whatever process; but anew by another model or another instruction."""
    server = serve(lambda text: "nothing" if text == "five" else "6")
    for _ in range(2):
        first, other, again = Judge(server.url, "grader").scores([*PROBLEMS, PROBLEMS[0]], [*TEXTS, "4"])
        assert (first, again) == (0.6, 0.6) and math.isnan(other)
    assert server.asked == {"4": 1, "five": 1}
    Judge(server.url, "other").scores(PROBLEMS, TEXTS)
    Judge(server.url, "other", "Grade the style.").scores(PROBLEMS, TEXTS)
    assert server.asked == {"4": 3, "five": 3}


@pytest.mark.parametrize("header", [{}, {"Retry-After": "0.2"}, {"Retry-After": formatdate(usegmt=True)}])
@pytest.mark.parametrize("status", [429, 503])
def test_a_judge_that_is_busy_is_asked_again(serve, header, status):
    server = serve(first=[(status, header), (status, {})])
    began = time.monotonic()
    assert Judge(server.url, "m").scores(PROBLEMS[:1], TEXTS[:1]) == [0.7]
    assert server.asked["4"] == 3 and time.monotonic() - began >= 0.2 * (header.get("Retry-After") == "0.2")


def test_a_judge_that_is_slow_is_left_alone(serve, monkeypatch):
    monkeypatch.setattr(judge, "SECONDS", 0.05)
    monkeypatch.setattr(judge, "TRIES", 2)
    server = serve(seconds=0.5)
    with pytest.raises(LabError, match=r"answered none of 2 requests \(ReadTimeout\): check that it runs"):
        Judge(server.url, "m").scores(PROBLEMS, TEXTS)
    assert server.asked == {"4": 2, "five": 2}


def test_no_more_requests_than_agreed_wait_at_a_time(serve, monkeypatch):
    monkeypatch.setattr(judge, "AT_ONCE", 3)
    server = serve(meet=3)
    assert Judge(server.url, "m").scores([PROBLEMS[0]] * 9, [str(number) for number in range(9)]) == [0.7] * 9
    assert server.most == 3


def test_nonsense_scores_nothing_and_nonsense_alone_is_said_in_words(serve):
    server = serve(lambda text: "As a language model" if text == "five" else "3")
    right, wrong = Judge(server.url, "m").scores(PROBLEMS, TEXTS)
    assert right == 0.3 and math.isnan(wrong)
    with pytest.raises(LabError, match=r"'m' gave no number from 0 to 10 for any of 1 answers, but for example 'As a"):
        Judge(server.url, "m").scores(PROBLEMS[1:], TEXTS[1:])


@pytest.mark.parametrize("thoughts", ["<think>Is it 3, or 4?", "Is it 3, or 4?", "<think>" + "Is it 3, or 4? " * 999])
def test_a_grade_stands_behind_its_thoughts(serve, thoughts):
    """Also where the judge's template begins them, and where they are longer than what is kept of a reply."""
    server = serve(lambda text: f"{thoughts}</think>\n\n8")
    assert Judge(server.url, "m").scores(PROBLEMS, TEXTS) == [0.8, 0.8]


def test_one_that_cannot_be_reached_for_some_scores_the_others(serve, monkeypatch):
    monkeypatch.setattr(judge, "TRIES", 1)
    server = serve(first=[(500, {})])
    known = Judge(server.url, "m")
    with pytest.raises(LabError, match=r"answered none of 1 requests \(500 7\)"):
        known.scores(PROBLEMS[:1], TEXTS[:1])
    right, wrong = known.scores(PROBLEMS, TEXTS)  # only now is the second text asked for the first time
    assert right == 0.7 and math.isnan(wrong)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_repeated_and_never_shows_the_key(serve, monkeypatch, status):
    monkeypatch.setenv("RL_LAB_JUDGE_KEY", "sk-secret")
    server = serve(lambda text: "Incorrect key sk-secret.", first=[(status, {})] * 9)
    with pytest.raises(LabError, match=f"refuses the request \\({status} incorrect key the key\\)") as refusal:
        Judge(server.url, "m").scores(PROBLEMS[:1], TEXTS[:1])
    assert server.asked == {"4": 1} and "sk-secret" not in str(refusal.value)


def test_no_part_of_the_key_is_shown_where_a_refusal_is_cut(serve, monkeypatch):
    monkeypatch.setenv("RL_LAB_JUDGE_KEY", "sk-secret")
    server = serve(lambda text: "x " * 95 + "sk-secret", first=[(401, {})])
    with pytest.raises(LabError, match="refuses the request") as refusal:
        Judge(server.url, "m").scores(PROBLEMS[:1], TEXTS[:1])
    assert "sk-" not in str(refusal.value)


@pytest.mark.parametrize("key", ["schlüssel", "sk-\nsecret"])
def test_a_key_that_no_request_can_have_is_said_in_words(serve, monkeypatch, key):
    monkeypatch.setenv("RL_LAB_JUDGE_KEY", key)
    with pytest.raises(LabError, match="RL_LAB_JUDGE_KEY has characters that no key has"):
        Judge(serve().url, "m").scores(PROBLEMS, TEXTS)


def test_nobody_listens(monkeypatch):
    monkeypatch.setattr(judge, "FIRST_WAIT", 0.0)
    with pytest.raises(LabError, match=r"answered none of 2 requests \(ConnectError\)"):
        Judge("http://127.0.0.1:9/v1", "m").scores(PROBLEMS, TEXTS)


def test_a_run_asks_no_judge_that_this_machine_has_not_named(serve):
    server, evil = serve(), "http://evil.example/v1"
    assert Judge.at(server.url, "m").scores(PROBLEMS[:1], TEXTS[:1]) == [0.7]
    knobs = {"reward_source": "judge", "judge_url": evil, "judge_model": "m"}
    with pytest.raises(LabError, match=r"evil\.example/v1, which this machine does not allow.*set RL_LAB_JUDGE_URL"):
        session("grpo", **knobs)
    with pytest.raises(LabError, match="does not allow as a judge"):
        session("grpo", **{**knobs, "reward_source": "own_function", "reward_function": "verifier + judge"})
    assert allow(evil) == evil
    session("grpo", **knobs)


@pytest.mark.parametrize("word, found", [
    ("http://localhost:8000", "http://localhost:8000/v1"), ("https://a.b/v1/", "https://a.b/v1"),
    (" https://a.b/openai/v1/chat/completions ", "https://a.b/openai/v1"), ("http://[::1]:80/v1", "http://[::1]:80/v1")])
def test_the_address_is_the_same_however_it_is_written(word, found):
    assert address(word) == found


@pytest.mark.parametrize("word, match", [
    ("localhost:8000", "is not a URL"), ("ftp://a.b", "is not a URL"), ("http://", "is not a URL"),
    ("http://a:b", "is not a URL"),
    ("", "is not a URL"), ("http://a b/v1", "is not a URL"), ("http://a\0b/v1", "is not a URL"),
    ("https://me:sk-1@a.b/v1", "must not hold a name"), ("https://a.b/v1?key=1", "must not hold")])
def test_an_address_that_cannot_be_is_said_in_words(word, match):
    with pytest.raises(LabError, match=match) as refusal:
        address(word)
    assert "sk-1" not in str(refusal.value)


@pytest.mark.parametrize("folder", [True, False])
def test_replies_that_cannot_be_read_or_kept_are_said_in_words(serve, folder):
    server = serve()
    if folder:
        (home() / JUDGEMENTS).mkdir(parents=True)
    else:
        home().mkdir()
        (home() / JUDGEMENTS).write_bytes(b"no database " * 999)
    with pytest.raises(LabError, match=r"judgements\.db cannot be used .*: free some disk space, or move"):
        Judge(server.url, "m").scores(PROBLEMS, TEXTS)


def test_a_run_learns_from_a_judge_and_its_pictures_ask_nothing(serve):
    server = serve(lambda text: str(ord(text[-1:] or "a") % 11) if ord(text[:1] or "a") % 2 else "hm")
    knobs = {"reward_source": "judge", "judge_url": server.url, "judge_model": "m", "prompts_per_step": 8}
    found = records(session("grpo", steps=2, **knobs), pictures=True)
    assert all(0 < record.metrics["reward"] < 1 and record.metrics["unscored/reward"] > 0 for record in found)
    assert "reward/gold" in found[0].metrics and max(server.asked.values()) <= 4  # one for each of the task's prompts
    before = server.asked.copy()
    again = records(session("grpo", steps=2, **knobs))
    assert [record.metrics["reward"] for record in again] == [record.metrics["reward"] for record in found]
    assert server.asked == before


def test_it_says_how_far_it_is_and_can_be_left_at_any_moment(serve, monkeypatch):
    """As a run is stopped or paused: within two seconds, whatever the judge still waits for."""
    monkeypatch.setattr(judge, "FIRST_WAIT", 30.0)
    server, heard = serve(first=[(503, {})]), []

    def listen(words, done, total):
        heard.append(words.format(done, total))
        if len(heard) > 1:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), listening(listen):
        Judge(server.url, "m").scores(PROBLEMS, TEXTS)
    assert heard[0] == "judged 0 of 2 answers" and time.monotonic() - began < 5
