"""No text of somebody else's reaches a terminal with a control character in it; JSON stays what it is."""

import json
import sys

from labcore.cli.main import main
from labcore.cli.terminal import ERASE, plain
from labcore.runs.store.store import Store
from tests.runs import fake

BAD = "a\x1b[2J\x9b31m\x07\rb\tc"


def test_whatever_a_run_is_marked_with(capsys):
    run_id = Store().create(fake.grpo(3))
    Store().mark(run_id, tags=[BAD], note=BAD)
    for command in (["runs"], ["runs", "--json"]):
        assert main(command) == 0
        said = capsys.readouterr().out
        assert r"a\u001b[2J\u009b31m\u0007\u000db" in said.replace(r"\r", r"\u000d")
        assert not {*said} & {*BAD} - {*"ab[2Jm31c\t"}
    assert json.loads(said)[0]["note"] == BAD


def test_both_streams_are_plain_and_the_lab_writes_its_own_line_again(capsys):
    def run(options):
        print(BAD)
        print(BAD, file=sys.stderr)
        sys.stderr.write(f"{ERASE}{BAD}")
        return 0

    with plain():
        run(None)
    said = capsys.readouterr()
    assert said.out == "a\\u001b[2J\\u009b31m\\u0007\\u000db\tc\n"
    assert said.err == f"{said.out}{ERASE}{said.out.strip()}"
