"""The files in deploy/ agree with the code and with each other. No container is built or started here."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from labcore.cli import commands
from labcore.cli.commands import spec_of
from labcore.cli.main import parser

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text()
PYTHON_OF_DEBIAN = {"bookworm": (3, 11), "trixie": (3, 13)}
yaml = pytest.importorskip("yaml")  # comes with accelerate


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_every_setting_is_one_that_the_code_reads(compose):
    code = "".join(path.read_text() for top in ("app", "labcore") for path in (ROOT / top).rglob("*.py"))
    given = {name for service in compose["services"].values() for name in service.get("environment", {})}
    given |= set(re.findall(r"\b(RL_LAB_\w+)=", CONTAINER))
    assert {"RL_LAB_READ_ONLY", "RL_LAB_STORE", "RL_LAB_ARTIFACTS", "RL_LAB_HOME"} <= given
    assert not {name for name in given if name.startswith("RL_LAB_") and f'"{name}"' not in code}


def test_every_variable_is_explained_and_every_secret_required(compose):
    text = (DEPLOY / "compose.yaml").read_text()
    wanted = set(re.findall(r"\$\{(\w+)", text))
    example = dict(line.split("=") for line in (DEPLOY / "env.example").read_text().splitlines() if line[:1].isupper())
    assert wanted == set(example)
    assert all(f"${{{name}:?}}" in text for name, value in example.items() if not value)


def test_what_is_mounted_is_there(compose):
    made_by_hand = {"secrets.toml", "secrets-shared.toml"}
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            if source.startswith("./") and source[2:] not in made_by_hand:
                assert (DEPLOY / source).is_file(), source
            elif not source.startswith("./"):
                assert source in compose["volumes"]


def test_only_the_proxy_can_be_reached_and_every_image_is_pinned(compose):
    assert [name for name, service in compose["services"].items() if "ports" in service] == ["proxy"]
    for name, service in compose["services"].items():
        assert "build" in service or re.search(r":[^:]*\d[^:]*$", service["image"]), name
    proxied = set(re.findall(r"reverse_proxy (\w+):8501", (DEPLOY / "Caddyfile").read_text()))
    hosts = compose["services"]["lab"]["environment"]["STREAMLIT_SERVER_ALLOWED_HOSTS"]
    assert {"127.0.0.1", "${LAB_HOST:?}", "${SHARED_HOST:?}"} <= set(hosts.split())  # Streamlit splits it there
    assert proxied == {name for name, service in compose["services"].items() if "build" in service}


def test_the_shared_lab_only_reads(compose):
    shared, lab = (compose["services"][name]["environment"] for name in ("shared", "lab"))
    assert shared["RL_LAB_READ_ONLY"] == "1" and "RL_LAB_READ_ONLY" not in lab
    assert "//lab_reader@" in shared["RL_LAB_STORE"] and shared["AWS_ACCESS_KEY_ID"] == "lab_reader"
    policy = json.loads((DEPLOY / "bucket-reader.json").read_text())
    actions = [action for each in policy["Statement"] for action in each["Action"]]
    assert all(action.startswith(("s3:Get", "s3:List")) for action in actions)
    granted = re.findall(r"^GRANT (\w+)|GRANT (\w+) ON TABLES", (DEPLOY / "readonly.sql").read_text(), re.MULTILINE)
    assert {word for pair in granted for word in pair if word} == {"USAGE", "SELECT"}


def test_its_python_can_run_the_lab():
    debian = re.search(r"^FROM debian:(\w+)-slim$", CONTAINER, re.MULTILINE)
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert PYTHON_OF_DEBIAN[debian[1]] >= tuple(map(int, least.removeprefix(">=").split(".")))


def test_what_is_copied_is_there_and_not_ignored():
    copied = {word for line in re.findall(r"^COPY (.*)$", CONTAINER, re.MULTILINE) for word in line.split()[:-1]}
    let_in = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert copied == let_in and all((ROOT / name).exists() for name in copied)
    installed = set(re.findall(r"-r ([\w.-]+)", CONTAINER))
    assert installed <= copied and not any("dev" in name for name in installed)


def test_the_variant_with_cuda_alone_has_what_spares_the_memory_of_a_gpu():
    steps = [step for step in re.split(r"^RUN ", CONTAINER, flags=re.MULTILINE) if "requirements-8bit.txt" in step]
    assert re.search(r'"\$VARIANT" = cuda \]; then [^;]* -r requirements-8bit\.txt; fi', steps[-1])


def test_the_container_has_no_rights_it_does_not_need():
    before, _, after = CONTAINER.partition("\nUSER lab\n")
    assert "RUN" in before and "RUN" not in after and "/_stcore/health" in after


def test_the_example_of_the_login_is_one_that_the_lab_takes():
    found = tomllib.loads((DEPLOY / "secrets.example.toml").read_text())
    assert set(found) == {"auth", "lab"} and found["auth"]["redirect_uri"].endswith("/oauth2callback")
    assert all("@" in each for each in found["lab"]["allowed"])


MAKE, DEMO = (DEPLOY / "demo" / "make.sh").read_text(), (DEPLOY / "demo" / "Dockerfile").read_text()


def test_the_demo_only_reads_and_its_settings_are_ones_that_the_code_reads():
    given = dict(re.findall(r"^ *(?:ENV )?(RL_LAB_\w+)=(\S+)", DEMO, re.MULTILINE))
    code = "".join(path.read_text() for top in ("app", "labcore") for path in (ROOT / top).rglob("*.py"))
    assert given["RL_LAB_READ_ONLY"] == "1" and int(given["RL_LAB_VISITORS"]) > 1
    assert not [name for name in given if f'"{name}"' not in code]
    assert "\nUSER lab\n" in DEMO and "torch" not in DEMO


def test_the_demo_leaves_out_packages_and_settings_that_are_there():
    pinned = {line.partition("==")[0] for line in (ROOT / "requirements.txt").read_text().splitlines()}
    left_out = {name for names in re.findall(r"\^\(([\w|-]+)\)==", MAKE) for name in names.split("|")}
    assert "torch" in left_out and left_out <= pinned
    config = (ROOT / "app" / ".streamlit" / "config.toml").read_text()
    changed = re.findall(r"s/\^(\w+) = ", MAKE)
    assert len(changed) == 3 and all(re.search(rf"^{name} = ", config, re.MULTILINE) for name in changed)


def test_the_demo_is_a_space_of_its_own_port():
    front = yaml.safe_load((DEPLOY / "demo" / "README.md").read_text().split("---")[1])
    assert front["sdk"] == "docker" and f"EXPOSE {front['app_port']}" in DEMO


@pytest.mark.parametrize("line", re.findall(r"\$lab (run .*) --json", MAKE))
def test_every_run_of_the_demo_can_be_made(line):
    options = parser().parse_args(line.split())
    commands._take_preset(options)
    assert spec_of(options).steps > 20
