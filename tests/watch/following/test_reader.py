"""Files are read while they grow: whole, byte by byte, after a restart, cut, replaced and written again."""

import json

import pytest

from labcore.watch.following.calls import End
from labcore.watch.following.event_files import EventFile
from labcore.watch.following.lines import Csv, JsonLines, Monitor
from labcore.watch.following.reader import Damaged
from labcore.watch.following.wandb_log import WandbLog
from tests.watch.following.tools import Followed, content, rows
from tests.words import says

SMALL = {"verl/gsm8k/*.jsonl": JsonLines, "sb3/progress.csv": Csv, "sb3/monitor.csv": Monitor,
         "sb3/progress.json": JsonLines, "tensorboard/old/*": EventFile, "openrlhf/*/*": EventFile,
         "tensorboard/new/*": EventFile, "prime/metrics.jsonl": JsonLines}


def same(found, whole):
    """Equal calls, NaN among their numbers."""
    return repr(found) == repr(whole)


@pytest.mark.parametrize("pattern", SMALL)
def test_a_file_that_grows_by_single_bytes_gives_the_same_data(pattern, tmp_path):
    data = content(pattern)
    whole = Followed(tmp_path / "whole", SMALL[pattern]).append(data)
    file, found = Followed(tmp_path / "grows", SMALL[pattern]), []
    for place in range(len(data)):
        found += file.append(data[place:place + 1])
        if place % 97 == 0:
            file.restart()
    assert same(found, whole) and len(whole) > 1 and file.said == []


def test_records_of_wandb_cross_blocks_and_wait_for_their_last_chunk(tmp_path):
    data = content("wandb/wandb/*/*.gz")
    whole = Followed(tmp_path / "whole", WandbLog).append(data)
    file, found, place = Followed(tmp_path / "grows", WandbLog), [], 0
    near = [at for block in (2**15, 2**16) for at in range(block - 20, block + 20)]
    for end in sorted({*range(0, len(data), 997), *range(40), *near, len(data)}):
        found += file.append(data[place:end])
        file.restart()
        place = end
    assert same(found, whole) and isinstance(whole[-1], End) and len(rows(whole)) == 5


@pytest.mark.parametrize("pattern", [*SMALL, "wandb/wandb/*/*.gz"])
def test_a_longer_copy_is_the_same_file_and_another_log_is_not(pattern, tmp_path):
    """rsync writes a new file at every turn, under another inode."""
    data, kind = content(pattern), SMALL.get(pattern, WandbLog)
    whole = Followed(tmp_path / "whole", kind).append(data)
    file = Followed(tmp_path / "copied", kind)
    found = file.append(data[:len(data) // 2])
    (tmp_path / "new").write_bytes(data)
    (tmp_path / "new").replace(file.path)
    file.restart()
    assert same(found + file.look(), whole)
    file.path.write_bytes(data[:len(data) * 2 // 3])  # its writer was started again, and is shorter yet
    again = file.look(settled=True)
    assert again and same(again, whole[:len(again)])


def test_a_file_is_not_read_while_it_is_rewritten(tmp_path):
    file = Followed(tmp_path / "log", JsonLines)
    file.append(b'{"step": 1, "loss": 1}\n{"step": 2, "loss": 1}\n')
    file.path.write_bytes(b'{"step": 1, "loss": 2}\n')
    assert file.look() == [] and rows(file.look(settled=True)) == [{"step": 1, "loss": 2}]


def test_stable_baselines3_rewrites_its_csv_for_a_new_column(tmp_path):
    """stable_baselines3.common.logger.CSVOutputFormat: the header grows, and all rows get more commas."""
    file = Followed(tmp_path / "progress.csv", Csv)
    assert rows(file.append(b"time/iterations,loss\n1,0.5\n2,nan\n"))[0] == {"time/iterations": 1, "loss": 0.5}
    file.restart()
    file.path.write_bytes(b"time/iterations,loss,eval\n1,0.5,\n2,nan,\n3,0.25,7\n")
    assert rows(file.look(settled=True)) == [{"time/iterations": 3, "loss": 0.25, "eval": 7}]
    file.path.write_bytes(b"time/iterations,loss,eval,other\n1,9.5,,\n2,9,,\n3,9,,\n4,9,,\n")  # another training
    assert [row["loss"] for row in rows(file.look(settled=True))] == [9.5, 9, 9, 9]


def test_invalid_rows_are_skipped_and_reported_once(tmp_path):
    file = Followed(tmp_path / "log", JsonLines)
    found = rows(file.append(b'{"step": 1}\nnot json\n[1]\n{"step": \xff}\nagain\n{"step": 2, "kl": NaN}\n'))
    assert [row["step"] for row in found] == [1, 2]
    assert [says(sentence, "not JSON", "skipped", line) for sentence, line in zip(
        file.said, ("line 2", "line 3"), strict=True)] == [True, True]
    table = Followed(tmp_path / "table", Csv)
    assert [row["step"] for row in rows(table.append(b'step,note\n1,"a\nb, c"\n2\n3,x\n'))] == [1, 3]
    assert [says(each, "skipped", "line 4", "1 cells", "header has 2") for each in table.said] == [True]


def test_a_last_line_without_a_line_break_is_read_if_it_is_complete(tmp_path):
    file = Followed(tmp_path / "log", JsonLines)
    assert file.append(b'{"step": 1, "a": {"b": 2') == [] and rows(file.append(b"}}")) == [{"step": 1, "a/b": 2}]
    assert rows(file.append(b'\n{"step": 2}\n')) == [{"step": 2}]


def test_a_line_that_never_ends_is_given_up(tmp_path):
    file = Followed(tmp_path / "log", JsonLines)
    file.path.write_bytes(b'{"text": "' + b"x" * JsonLines.most)
    with pytest.raises(Damaged, match="more than 4 MB at byte 0"):
        file.look()


def test_a_damaged_event_is_skipped_and_an_incomplete_one_waits(tmp_path):
    data = content("tensorboard/old/*")
    file = Followed(tmp_path / "events", EventFile)
    broken = bytearray(data)
    broken[-70] ^= 1  # in the content of the last event but one
    found = file.append(bytes(broken))
    assert [row["step"] for row in rows(found)] == [0, 2] and "damaged record" in file.said[0]
    late = Followed(tmp_path / "late", EventFile)
    torn = bytearray(data)
    torn[-1] ^= 1
    assert [row["step"] for row in rows(late.append(bytes(torn)))] == [0, 1] and late.said == []
    late.path.write_bytes(data)
    assert [row["step"] for row in rows(late.look(settled=True))] == [2]
    length = Followed(tmp_path / "length", EventFile)
    with pytest.raises(Damaged, match="damaged at byte 0"):
        length.append(b"\xff" * 40)


def test_a_damaged_block_of_wandb_is_skipped(tmp_path):
    data = bytearray(content("wandb/wandb/*/*.gz"))
    data[600] ^= 1
    file = Followed(tmp_path / "run.wandb", WandbLog)
    found = file.append(bytes(data))
    assert isinstance(found[-1], End) and len(rows(found)) < 5 and "damaged at byte" in file.said[0]
    with pytest.raises(Damaged, match="does not begin"):
        Followed(tmp_path / "other.wandb", WandbLog).append(b"something else")


def test_the_state_of_readers_is_json(tmp_path):
    for number, (pattern, kind) in enumerate(SMALL.items()):
        file = Followed(tmp_path / str(number), kind)
        file.append(content(pattern))
        assert json.loads(json.dumps(file.memory, allow_nan=False)) == file.memory
