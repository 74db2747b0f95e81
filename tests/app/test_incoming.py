"""Runs of other machines: the token, the limits, names that could be paths, and a client whose lab comes and goes."""

import json
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app import incoming, serving
from labcore.errors import LabError
from labcore.runs.files.paths import home
from labcore.runs.store.store import Store
from labcore.watch import Watch
from labcore.watch import client as module
from labcore.watch.converting import receiving, spool
from tests.watch.tools import read, rows
from tests.workers.tools import until

SECRET = "0123456789abcdef"
BEARER = {"Authorization": f"Bearer {SECRET}"}
FILE = "0000000000001-aa-00000.jsonl"
LINE = b'{"kind": "numbers", "step": 1, "numbers": {"loss": 1}}\n'


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setenv(receiving.TOKEN, SECRET)
    monkeypatch.setattr(incoming, "WRONG_SECONDS", 0.0)
    with TestClient(Starlette(routes=incoming.routes())) as client:
        yield client


def test_without_a_token_the_endpoint_does_not_exist(monkeypatch):
    assert incoming.routes() == []
    monkeypatch.setenv(receiving.TOKEN, "short")
    assert incoming.routes() == []
    with pytest.raises(LabError, match="at least 16"):
        serving.has_room()
    monkeypatch.setenv(receiving.TOKEN, SECRET)
    assert len(incoming.routes()) == 2
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    assert incoming.routes() == []


@pytest.mark.parametrize("said", [None, SECRET, f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}é".encode(), "Bearer "])
def test_a_wrong_token_is_refused_and_nothing_is_written(client, said):
    headers = {} if said is None else {"Authorization": said}
    answer = client.post(f"/watch/r/{FILE}", content=LINE, headers=headers)
    assert answer.status_code == 401 and "token" in answer.text and not spool.root().exists()


@pytest.mark.parametrize("path", ["/watch/..", "/watch/%2e%2e", "/watch/a%2Fb", "/watch/.hidden", f"/watch/{'a' * 200}",
                                  "/watch/r/run.json", "/watch/r/..%2F..%2Fx.jsonl", "/watch/r/a.jsonl",
                                  f"/watch/r/{FILE}?at=-1", f"/watch/r/{FILE}?at=x", f"/watch/r/{FILE}?at={'9' * 40}"])
def test_no_name_becomes_a_path(client, path):
    answer = client.post(path, content=LINE, headers=BEARER)
    assert answer.status_code in (400, 404), answer.text
    assert not spool.root().exists() or [*spool.root().rglob("*.jsonl")] == []


def test_a_body_without_a_length_is_limited_too(client, monkeypatch):
    monkeypatch.setattr(incoming, "BODY_BYTES", 100)
    assert client.post(f"/watch/r/{FILE}", content=LINE * 2, headers=BEARER).status_code == 413
    assert client.post(f"/watch/r/{FILE}", content=iter([LINE] * 3), headers=BEARER).status_code == 413
    assert client.post(f"/watch/r/{FILE}", content=LINE, headers=BEARER).status_code == 200


def test_existing_bytes_are_not_added_again_and_a_gap_is_reported(client):
    def post(at: int, body: bytes) -> int:
        answer = client.post(f"/watch/r/{FILE}?at={at}", content=body, headers=BEARER)
        return answer.json()["size"]

    assert post(0, LINE) == len(LINE) and post(0, LINE) == len(LINE)  # the answer was lost
    assert post(len(LINE) - 5, LINE[-5:] + LINE) == 2 * len(LINE)
    assert post(10_000, LINE) == 2 * len(LINE)
    path, = spool.files(spool.folder_of("r"))
    assert path.read_bytes() == 2 * LINE


@pytest.mark.parametrize("limit, status, words", [
    ("FILE_BYTES", 413, "start the next"), ("WAITING_BYTES", 507, "send these later"), ("MOST_RUNS", 507, "delete")])
def test_files_and_runs_are_limited(client, monkeypatch, limit, status, words):
    assert client.post(f"/watch/other/{FILE}", content=LINE, headers=BEARER).status_code == 200
    assert client.post(f"/watch/r/{FILE}", content=LINE, headers=BEARER).status_code == 200
    monkeypatch.setattr(receiving, limit, 1)
    name = "third" if limit == "MOST_RUNS" else "r"
    answer = client.post(f"/watch/{name}/{FILE}?at={len(LINE)}", content=LINE, headers=BEARER)
    assert answer.status_code == status and words in answer.text


def test_lines_of_another_language_are_a_run(client):
    begin = json.dumps({"kind": "run", "name": "from julia", "tool": "Flux", "config": {"lr": 0.1}}).encode() + b"\n"
    assert client.post("/watch/mine", content=begin + LINE, headers=BEARER).status_code == 200
    assert client.post("/watch/mine", content=LINE.replace(b'"step": 1', b'"step": 2'), headers=BEARER).is_success
    half = client.post("/watch/mine", content=LINE[:-1], headers=BEARER)
    assert half.status_code == 400 and "line break" in half.text
    store = Store()
    run, = read(store)
    assert (run.spec.task, run.spec.tool, run.spec.knobs) == ("from julia", "Flux", {"learning_rate": 0.1})
    assert json.loads((spool.folder_of("mine") / spool.ABOUT).read_text())["name"] == "from julia"


def test_a_run_that_was_deleted_is_gone(client):
    client.post(f"/watch/r/{FILE}", content=LINE, headers=BEARER)
    spool.forget(spool.folder_of("r"))
    assert client.post(f"/watch/r/{FILE}", content=LINE, headers=BEARER).status_code == 410


# ---- the client and a real server -------------------------------------------------------------------------------


@contextmanager
def server(port: int = 0):
    """A lab's endpoint on a port of this machine; its address."""
    config = uvicorn.Config(Starlette(routes=incoming.routes()), port=port, log_level="error")
    served = uvicorn.Server(config)
    thread = threading.Thread(target=served.run, daemon=True)
    thread.start()
    while not served.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{served.servers[0].sockets[0].getsockname()[1]}"
    finally:
        served.should_exit = True
        thread.join()


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A program of another machine: its files are not in the lab's folder, and it does not wait long."""
    monkeypatch.setenv(receiving.TOKEN, SECRET)
    monkeypatch.setattr(incoming, "WRONG_SECONDS", 0.0)
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module.time, "sleep", lambda seconds, real=time.sleep: real(min(seconds, 0.02)))
    monkeypatch.setattr(module, "CLOSE_SECONDS", 5.0)
    return str(tmp_path / "spool")


def test_a_run_of_another_machine_is_sent_whole_and_leaves_nothing_behind(elsewhere, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SEGMENT_BYTES", 2000)
    with server() as url, Watch("mine", elsewhere, url, SECRET, run_id="r") as run:
        for step in range(1, 201):
            run.log(step, {"loss": 1.0 / step})
    store = Store()
    row, = read(store)
    assert row.state == "finished" and len(rows(store, row.id)) == 200
    assert [*(tmp_path / "spool").rglob("*.jsonl")] == []


def test_a_trainer_on_another_machine_receives_requests(elsewhere):
    with server() as url, Watch("mine", elsewhere, url, SECRET, run_id="r") as run:
        run.log(1, {"loss": 1.0})
        folder = spool.folder_of("r")
        until(lambda: any(each.stat().st_size for each in spool.files(folder)))  # they delete an earlier request
        assert run.asked() == {}
        (folder / spool.ASKED).write_text('{"stop": true, "why": "it is hacked"}')
        until(lambda: run.asked())
        assert run.asked() == {"stop": True, "why": "it is hacked"}
        (folder / spool.ASKED).write_text("[1")
        until(lambda: not run.asked())


def test_lines_for_an_unreachable_lab_are_sent_later_by_the_next_run(elsewhere, monkeypatch):
    with server() as url:
        port = int(url.rpartition(":")[2])
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.2)
    with Watch("first", elsewhere, url, SECRET, run_id="first") as run:
        run.log(1, {"loss": 1.0})
    assert not spool.root().exists()
    monkeypatch.setattr(module, "CLOSE_SECONDS", 5.0)
    ended = time.time()
    monkeypatch.setattr(module, "_lives", lambda about: about["created"] > ended)  # the first program's thread may live
    with server(port) as url, Watch("second", elsewhere, url, SECRET, run_id="second") as run:
        run.log(1, {"loss": 2.0})
    store = Store()
    found = {run.spec.task: rows(store, run.id) for run in read(store)}
    assert found == {"first": {1: {"loss": 1.0}}, "second": {1: {"loss": 2.0}}}


def test_two_programs_of_one_id_on_one_machine_delete_no_file_of_each_other(elsewhere):
    with server() as url:
        one, two = (Watch("mine", elsewhere, url, SECRET, run_id="r") for _ in range(2))
        one.log(1, {"loss": 1.0})
        until(lambda: len(spool.files(spool.folder_of("r"))) == 2)
        one.close()
        for step in (2, 3):
            two.log(step, {"loss": 1.0})
        two.finish()
    store = Store()
    assert sorted(step for run in read(store) for step in rows(store, run.id)) == [1, 2, 3]


def test_lines_of_a_killed_process_are_sent_before_those_of_its_successor(elsewhere, monkeypatch):
    with server() as url:
        port = int(url.rpartition(":")[2])
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.2)
    first = Watch("mine", elsewhere, url, SECRET, run_id="r")
    first.log(1, {"loss": 1.0})
    first.close()
    monkeypatch.setattr(module, "CLOSE_SECONDS", 5.0)
    ended = time.time()
    monkeypatch.setattr(module, "_lives", lambda about: about["created"] > ended)
    with server(port) as url, Watch("mine", elsewhere, url, SECRET, run_id="r") as run:
        run.log(2, {"loss": 2.0})
    store = Store()
    row, = read(store)
    assert [*rows(store, row.id)] == [1, 2]


def test_a_refused_run_does_not_block_other_runs(elsewhere, monkeypatch, tmp_path):
    left = tmp_path / "spool" / "watched" / "left~1"
    (left / "spool").mkdir(parents=True)
    (left / "spool" / "no-name-of-a-file.jsonl").write_bytes(LINE)
    monkeypatch.setattr(module, "_lives", lambda about: False)
    with server() as url:
        (left / "run.json").write_text(json.dumps({"url": url}))
        with Watch("mine", elsewhere, url, SECRET, run_id="r") as run:
            run.log(1, {"loss": 1.0})
            until(lambda: spool.files(spool.folder_of("r")))
    row, = read(Store())
    assert row.spec.task == "mine" and (left / "spool" / "no-name-of-a-file.jsonl").exists()


def test_a_wrong_token_is_reported_once_and_the_lines_are_kept(elsewhere, monkeypatch, tmp_path):
    said: list[str] = []
    monkeypatch.setattr(module._log, "warning", lambda *words: said.append(str(words)))
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.3)
    with server() as url, Watch("mine", elsewhere, url, "x" * 16, run_id="r") as run:
        for step in range(1, 6):
            run.log(step, {"loss": 1.0})
            time.sleep(0.02)
    assert sum("401" in each and "token is wrong" in each for each in said) == 1 and not (home() / "watched").exists()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "spool").rglob("*.jsonl"))
    assert kept.count(b'"numbers":') == 5


def test_the_token_is_never_sent_to_another_address(elsewhere, monkeypatch):
    from starlette.responses import RedirectResponse
    from starlette.routing import Route

    seen: list[str] = []

    async def elsewhere_to(request):
        seen.append(request.url.path)
        return RedirectResponse("/stolen", 302)

    monkeypatch.setattr(incoming, "routes", lambda: [Route("/{path:path}", elsewhere_to, methods=["GET", "POST"])])
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.3)
    with server() as url, Watch("mine", elsewhere, url, SECRET, run_id="r") as run:
        run.log(1, {"loss": 1.0})
    assert seen and not any("stolen" in path for path in seen)


def test_requests_to_a_trainer_are_in_the_responses(client):
    assert client.post(f"/watch/r/{FILE}", content=LINE, headers=BEARER).json() == {"size": len(LINE)}
    asked = {"stop": True, "why": "the reward is hacked"}
    (spool.folder_of("r") / spool.ASKED).write_text(json.dumps(asked))
    answer = client.post(f"/watch/r/{FILE}?at={len(LINE)}", content=b"", headers=BEARER).json()
    assert answer == {"size": len(LINE), "asked": asked}
    second = FILE.replace("-aa-", "-bb-")
    assert client.post(f"/watch/r/{second}", content=LINE, headers=BEARER).json() == {"size": len(LINE)}, "begun anew"
