"""What the lab finds out of a machine without torch, on machines of many kinds; what nobody tells it does not guess."""

import pytest

from labcore import machine
from labcore.runs.spec.run_spec import make
from tests.words import says

XEON = "processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: fpu avx512f amx_tile {}\n\nprocessor\t: 1\nflags\t\t: {}\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd {}\n"


@pytest.fixture
def told(tmp_path, monkeypatch):
    """told(cpuinfo, gpus) makes this a Linux machine of which that is told; None: nothing is."""
    def tell(cpuinfo, gpus=None, driver=False):
        def smi():
            if gpus is None:
                raise FileNotFoundError
            return gpus
        path = tmp_path / "cpuinfo"
        path.unlink(missing_ok=True)
        if cpuinfo is not None:
            path.write_text(cpuinfo)
        monkeypatch.setattr(machine, "CPUINFO", path)
        monkeypatch.setattr(machine, "DRIVERS", (tmp_path,) if driver else ())
        monkeypatch.setattr(machine, "NVIDIA_SMI", (str(tmp_path / "none"),))
        monkeypatch.setattr(machine, "_nvidia_smi", smi)
        monkeypatch.setattr(machine, "_only_cpu", lambda: False)
        monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        machine.bf16.cache_clear()
    yield tell
    machine.bf16.cache_clear()


@pytest.mark.parametrize("cpuinfo, able, names", [
    (XEON.format("avx512_bf16", ""), True, "AVX512-BF16"), (XEON.format("amx_bf16 avx512_bf16", ""), True,
                                                            "AMX-BF16, AVX512-BF16"),
    (XEON.format("avx512_bf16_not", "avx512_bf16"), False, ""), (ARM.format("bf16 i8mm"), True, "Arm BF16"),
    (ARM.format("i8mm"), False, ""), ("processor\t: 0\ncpu\t\t: POWER10\n", None, ""), (None, None, "")])
def test_which_processors_have_bf16_arithmetic(told, cpuinfo, able, names):
    told(cpuinfo)
    found = machine.bf16()
    assert (found.able, found.names) == (able, names)
    assert bool(machine.bf16_said()) == (able is not None)


@pytest.mark.parametrize("gpus, able", [
    ("NVIDIA A100-SXM4-40GB, 8.0, 39000, 40960\n", True), ("Tesla T4, 7.5, 14913, 15360\n", False),
    ("NVIDIA H100 80GB HBM3, 9.0, 80994, 81559\nTesla T4, 7.5, 14913, 15360\n", None),
    ("Tesla T4, [N/A], 14913, 15360\n", None)])
def test_which_gpus_have_it(told, gpus, able):
    told(XEON.format("", ""), gpus, driver=True)
    assert machine.bf16().able is able
    assert machine.bf16("cpu").able is False, "whatever the GPU has"


def test_which_device_a_run_will_take_and_what_is_free_on_it(told, monkeypatch):
    told(None, "NVIDIA H100 80GB HBM3, 9.0, 1000, 2000\nTesla T4, 7.5, 3, 5\n")
    assert machine.device_kind("auto") == "cuda" and machine.free_memory() == 3 * 2**20
    assert machine.total_memory() == 5 * 2**20 and machine.total_memory("cpu") is None
    assert machine.free_memory("cpu") > 2**20
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.device_kind("auto") == "cpu"
    told(None)
    assert machine.device_kind("auto") == "cpu"
    told(None, driver=True)
    assert machine.device_kind("auto") == "" and machine.free_memory() is None, "its driver does not tell"
    monkeypatch.setattr(machine, "_only_cpu", lambda: True)
    assert machine.device_kind("auto") == "cpu"


def test_a_run_in_bf16_is_cautioned_against_exactly_where_nothing_has_it(told):
    ask = [make(kind=kind, algorithm_key="rloo", task_key=task, knobs={"dtype": dtype}, device="cpu")
           for kind, task in (("llm", "sort"), ("exact", "sorted")) for dtype in ("bf16", "fp32")]
    told(XEON.format("", ""))
    assert [says(spec.caution(), "`dtype`", "bf16", "A Xeon", "fp32") for spec in ask] == [True, False, True, False]
    assert [spec.caution() for spec in ask[1::2]] == ["", ""]
    assert says(machine.bf16_said(), "A Xeon", "no bf16", "fp32")
    told(XEON.format("avx512_bf16", ""))
    assert not any(spec.caution() for spec in ask)
    assert says(machine.bf16_said(), "A Xeon", "AVX512-BF16")
    told(None)
    assert not any(spec.caution() for spec in ask) and machine.bf16_said() == ""


@pytest.mark.parametrize(("told", "name"), [
    ("model name\t: AMD EPYC\ncpu family\t: 26\nmodel\t\t: 2\n", "AMD EPYC, family 26, model 2"),
    ("model name\t: A Xeon\n", "A Xeon")])
def test_processors_of_one_name_are_told_apart(told, name, monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text(told)
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert machine.exact_processor() == name
