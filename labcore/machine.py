"""The hardware of this machine, found out without torch: its processor, its NVIDIA GPUs, the memory that is free.

Linux tells of its processor in a file, and NVIDIA's driver of its GPUs by the command nvidia-smi. What nobody tells is
unknown (None), never guessed: the processors of macOS and Windows, and GPUs of others.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

CPUINFO = Path("/proc/cpuinfo")
# Instruction sets that multiply bfloat16 numbers, as Linux calls them, and as people do; by the name of their list.
BF16 = {"flags": {"amx_bf16": "AMX-BF16", "avx512_bf16": "AVX512-BF16"}, "Features": {"bf16": "Arm BF16"}}
BF16_CAPABILITY = (8, 0)  # compute capability of the first GPUs with bf16
DRIVERS = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))  # of NVIDIA, of Windows under WSL, of AMD
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,compute_cap,memory.free,memory.total", "--format=csv,noheader,nounits")
SECONDS = 5.0  # how long nvidia-smi may take
MIB = 2**20


@dataclass(frozen=True)
class Gpu:
    """`capability` is its compute capability, (8, 0) for 8.0; `free` and `total` are bytes."""

    name: str
    capability: tuple[int, int]
    free: int
    total: int


def processor() -> str:
    """The processor's name."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def exact_processor() -> str:
    """The processor's name with its family and model, which a virtual machine may leave out of the name. Between two
    models, numbers may differ in their last bits."""
    info = _cpuinfo()
    kind = [f"{key.removeprefix('cpu ')} {info[key]}" for key in ("cpu family", "model") if key in info]
    return ", ".join([processor(), *kind])


@dataclass(frozen=True)
class Bf16:
    """`where` names a device in words, `able` says whether it multiplies bfloat16 numbers itself (None: unknown), and
    `names` are the instructions that do it."""

    where: str
    able: bool | None
    names: str = ""


@cache  # a machine stays what it is
def bf16(device: str = "auto") -> Bf16:
    """The bf16 arithmetic of a device, by its name in a spec."""
    kind = device_kind(device)
    if kind == "cuda" and (found := gpus()):
        able = {gpu.capability >= BF16_CAPABILITY for gpu in found}
        return Bf16(f"this GPU ({found[0].name})", able.pop() if len(able) == 1 else None)
    info = _cpuinfo() if kind == "cpu" else {}
    listed = next((name for name in BF16 if name in info), None)
    if listed is None:
        return Bf16("this device", None)
    names = [name for flag, name in BF16[listed].items() if flag in info[listed].split()]
    return Bf16(f"this processor ({processor()})", bool(names), ", ".join(names))


def bf16_said() -> str:
    """A sentence on the bf16 arithmetic of the device that a page's runs use; empty if it is unknown."""
    found = bf16()
    if found.able is None:
        return ""
    has = f"bf16 arithmetic{f': {found.names}' if found.names else ''}." if found.able else (
        "no bf16 arithmetic: choose fp32.")
    return f"{found.where[0].upper()}{found.where[1:]} has {has}"


def device_kind(name: str) -> str:
    """The device that torch will take for a spec's `name`: "cpu", "cuda" or "mps"; "" where that is unknown."""
    if name != "auto":
        return name
    if platform.system() == "Darwin":
        return "mps" if platform.machine() == "arm64" else "cpu"
    if _only_cpu() or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "cpu"
    found = gpus()
    return "" if found is None else "cuda" if found else "cpu"


def free_memory(device: str = "auto") -> int | None:
    """Bytes that are free now on a device, by its name in a spec; of several GPUs on the fullest. None: unknown."""
    kind = device_kind(device)
    if kind == "cuda":
        return min((gpu.free for gpu in gpus() or ()), default=None)
    return int(psutil.virtual_memory().available) if kind else None  # Apple's GPUs share the machine's memory


def total_memory(device: str = "auto") -> int | None:
    """Bytes of the GPU that a device name of a spec means; of several GPUs, the smallest. None if it is no GPU, or its
    memory is unknown."""
    return min((gpu.total for gpu in gpus() or ()), default=None) if device_kind(device) == "cuda" else None


def gpus() -> list[Gpu] | None:
    """The NVIDIA GPUs; None where there is a driver that does not tell."""
    try:
        return [_gpu(line) for line in _nvidia_smi().splitlines()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None if any(path.exists() for path in DRIVERS) or shutil.which(NVIDIA_SMI[0]) else []


def _gpu(line: str) -> Gpu:
    """A line of nvidia-smi: "Tesla T4, 7.5, 14913, 15360"."""
    name, capability, free, total = (cell.strip() for cell in line.split(","))
    major, minor = map(int, capability.split("."))
    return Gpu(name, (major, minor), int(free) * MIB, int(total) * MIB)


def _nvidia_smi() -> str:
    return subprocess.run(NVIDIA_SMI, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def _only_cpu() -> bool:
    """True if the installed torch is the one without GPUs."""
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False


def _cpuinfo() -> dict[str, str]:
    """The fields that Linux gives of the first processor; empty elsewhere."""
    try:
        first = CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        return {}
    cells = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in cells}
