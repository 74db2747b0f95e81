"""Artifacts in a bucket: S3's protocol, spoken with moto's server."""

import psutil
import pytest

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import changes, deletion, fetch, manifest, object_store, publish
from labcore.runs.files.artifacts.publish import Publisher
from labcore.runs.files.paths import run_folder
from labcore.runs.files.storage import Away
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.launcher import Launcher
from tests.runs import fake
from tests.runs.files.artifacts.tools import RUN, saved
from tests.workers.tools import LIGHT, run, until

moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install -r requirements-cluster-dev.txt")
pytest.importorskip("s3fs", reason="s3fs is not installed: pip install -r requirements-cluster.txt")


@pytest.fixture(scope="module")
def server():
    found = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    found.start()
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def bucket(server, monkeypatch, tmp_path):
    """An empty bucket, and this machine's login for it."""
    import boto3

    host, port = server.get_host_and_port()
    for name, value in {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "an-id",
                        "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_DEFAULT_REGION": "us-east-1",
                        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(tmp_path / "none"),
                        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RL_LAB_ARTIFACTS", "s3://lab/of/ours")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", -1)
    monkeypatch.setattr(fetch, "AWAY_SECONDS", -1)
    client = boto3.client("s3")
    client.create_bucket(Bucket="lab")
    forget_clients()
    yield client
    for item in client.list_objects_v2(Bucket="lab").get("Contents", ()):
        client.delete_object(Bucket="lab", Key=item["Key"])
    client.delete_bucket(Bucket="lab")


def forget_clients():
    import s3fs

    object_store._opened.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()


def keys(bucket) -> list[str]:
    return sorted(item["Key"] for item in bucket.list_objects_v2(Bucket="lab").get("Contents", ()))


@pytest.fixture
def another(tmp_path, monkeypatch):
    def go(name="b"):
        monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / name))
    return go


def test_what_is_published_is_fetched_pruned_and_deleted(bucket, another):
    for step in range(0, 1600, 100):
        saved(step)
    publish.publish(object_store.opened(), RUN)
    there = fetch.names(RUN, "checkpoints")
    assert len(there) == 1 + checkpoint.LADDER + checkpoint.KEEP
    assert sum(key.endswith(manifest.NAME) for key in keys(bucket)) == len(there)
    assert all(key.startswith("of/ours/") for key in keys(bucket))
    another()
    step, path = checkpoint.newest(run_folder(RUN))
    assert step == 1500 and (path / "policy" / "weights").read_text() == "1500" * 100
    saved(1600)
    publish.publish(object_store.opened(), RUN)
    assert len(fetch.names(RUN, "checkpoints")) == len(there) and fetch.names(RUN, "checkpoints")[-1] == "step-001600"
    changes.forget(RUN)
    deletion.clear(object_store.opened())
    assert keys(bucket) == [f"of/ours/{object_store.MARKER}"]


def test_a_damaged_object_is_a_sentence_and_is_never_used(bucket, another):
    saved(50)
    publish.publish(object_store.opened(), RUN)
    for key in keys(bucket):
        if not key.endswith(".json"):
            bucket.put_object(Bucket="lab", Key=key, Body=b"x")
    another()
    with pytest.raises(LabError, match=r"step-000050 in s3://lab/of/ours is damaged"):
        checkpoint.newest(run_folder(RUN))
    assert not list((run_folder(RUN) / "checkpoints").iterdir())


def test_a_run_that_was_interrupted_ends_in_another_home_bit_for_bit(bucket, another, monkeypatch, tmp_path):
    monkeypatch.setenv("RL_LAB_STORE", f"sqlite:///{tmp_path / 'lab.db'}")
    store = Store()

    def interrupt():
        raise KeyboardInterrupt

    whole, run_id = (store.create(fake.grpo(60), mine=True) for _ in range(2))
    assert run(store, whole) == "finished"
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    another()
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == fake.trained(store, whole)
    assert fetch.names(run_id, "checkpoints") == ["step-000000", "step-000050", "step-000060"]


def test_a_lab_forks_workers_that_publish(another, monkeypatch, tmp_path):
    """The client of a bucket has threads and connections of its own: each worker makes them after the fork."""
    monkeypatch.setenv("RL_LAB_STORE", f"sqlite:///{tmp_path / 'lab.db'}")
    store = Store()
    lab = Launcher(store, LIGHT)
    try:
        runs = [lab.start(make(kind="maze", algorithm_key="sarsa_lambda", task_key="slippery", steps=20, seed=seed,
                               knobs={"pace": 0})) for seed in (1, 2)]
        until(lambda: all(store.run(run_id).state == "finished" for run_id in runs))
        assert psutil.Process(lab._process.pid).num_threads() == 1
    finally:
        lab.close()
    another()
    assert all(checkpoint.newest(run_folder(run_id))[0] == 20 for run_id in runs)


def test_a_server_that_goes_away_is_said_and_all_is_published_when_it_is_back(server, monkeypatch):
    monkeypatch.setattr("labcore.runs.files.artifacts.publish.RETRY_SECONDS", 0.01)
    said = []
    with Publisher(lambda *words: said.append(words)) as publisher:
        saved(0)
        assert publisher.flush()
        store, real = object_store.opened(), object_store.opened()._files
        import botocore.exceptions

        class Gone:
            def __getattr__(self, name):
                raise botocore.exceptions.EndpointConnectionError(endpoint_url="http://127.0.0.1:1")

        store._files = Gone()
        saved(50)
        assert not publisher.flush()
        store._files = real
        while not publisher.flush():
            pass  # a try may have been under way
    assert [bool(why) for _, why in said] == [True, False] and "cannot be reached" in said[0][1]
    assert fetch.names(RUN, "checkpoints") == ["step-000000", "step-000050"]


@pytest.mark.parametrize("change, words", [
    ({"RL_LAB_ARTIFACTS": "s3://no-such-bucket/a"}, "There is no bucket no-such-bucket, which RL_LAB_ARTIFACTS names"),
    ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "refuses the login: check its credentials"),
    ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be reached"),
])
def test_what_cannot_be_used_is_one_sentence_when_the_lab_opens(monkeypatch, change, words):
    for name, value in change.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    forget_clients()
    with pytest.raises(Away, match=words) as error:
        object_store.check()
    assert "a-secret" not in str(error.value) and "an-id" not in str(error.value)
