"""Which devices are found, and what is said of those that cannot be used; torch is a small stand-in here.

What a real accelerator answers cannot be had without one: these objects have the attributes that the
payload asks for, and nothing else.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Object
from typing import Any

import pytest

import probe_payload
from probe_payload import Facts, find_devices, fingerprint, matches_device, read_nvidia_list

Entries = list[dict[str, Any]]

# The form of `nvidia-smi -L` as NVIDIA's MIG user guide shows it.
MIG_LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-6e8cf3a1-0000-1111-2222-333344445555)
"""
PLAIN_LISTING = """\
GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222-3333-4444-555555555555)
GPU 1: NVIDIA H200 (UUID: GPU-66666666-7777-8888-9999-000000000000)
"""


def runtime(count: int = 0, warning: str | None = None, error: Exception | None = None) -> Object:
    """torch.cuda or torch.xpu."""

    def is_available() -> bool:
        if error:
            raise error
        if warning:
            warnings.warn(warning, UserWarning, stacklevel=1)
        return count > 0

    return Object(is_available=is_available, device_count=lambda: count)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a torch in place: of this build, with these runtimes, beside this listing of the driver."""

    def put(
        build: str = "cpu",
        cuda: Object | None = None,
        xpu: Object | None = None,
        mps: bool = False,
        listing: str = "",
    ) -> None:
        version = Object(cuda=None, hip=None, xpu=None)
        setattr(version, {"rocm": "hip"}.get(build, build), None if build == "cpu" else "12.8")
        backends = Object(mps=Object(is_available=lambda: mps, is_built=lambda: mps))
        fake = Object(version=version, cuda=cuda or runtime(), xpu=xpu or runtime(), backends=backends)
        monkeypatch.setitem(sys.modules, "torch", fake)
        monkeypatch.setattr(probe_payload, "nvidia_gpus", lambda: read_nvidia_list(listing))
        # The machine that runs this test may have devices of its own.
        monkeypatch.setattr(probe_payload, "_unusable_intel", lambda build: [])
        monkeypatch.setattr(sys, "platform", "linux")
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
            monkeypatch.delenv(name, raising=False)

    return put


def shown(entries: Entries) -> list[tuple[str, str, Any]]:
    return [(entry["device"], entry["backend"], entry["visible"]) for entry in entries]


CPU = ("cpu", "cpu", None)


def test_the_cpu_is_always_there(torch: Callable[..., None]) -> None:
    torch()
    assert shown(find_devices()) == [CPU]


def test_every_cuda_device_sees_only_itself(torch: Callable[..., None]) -> None:
    torch("cuda", cuda=runtime(2), listing=PLAIN_LISTING)
    assert shown(find_devices()) == [
        CPU,
        ("cuda:0", "cuda", ("CUDA_VISIBLE_DEVICES", "0")),
        ("cuda:1", "cuda", ("CUDA_VISIBLE_DEVICES", "1")),
    ]


@pytest.mark.parametrize("given", ["3,1", "GPU-aaaa,GPU-bbbb"])
def test_a_variable_that_is_set_is_narrowed(
    torch: Callable[..., None], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    torch("cuda", cuda=runtime(2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert [entry["visible"] for entry in find_devices()[1:]] == [
        ("CUDA_VISIBLE_DEVICES", part) for part in given.split(",")
    ]


def test_rocm_is_named_so_and_has_its_own_variable(torch: Callable[..., None]) -> None:
    torch("rocm", cuda=runtime(1))
    assert shown(find_devices()) == [CPU, ("cuda:0", "rocm", ("HIP_VISIBLE_DEVICES", "0"))]


def test_xpu(torch: Callable[..., None]) -> None:
    torch("xpu", xpu=runtime(2))
    assert shown(find_devices()) == [
        CPU,
        ("xpu:0", "xpu", ("ZE_AFFINITY_MASK", "0")),
        ("xpu:1", "xpu", ("ZE_AFFINITY_MASK", "1")),
    ]


def test_mps(torch: Callable[..., None]) -> None:
    torch(mps=True)
    assert shown(find_devices()) == [CPU, ("mps", "mps", None)]


def test_mig_slices_are_devices_and_their_gpu_is_none(torch: Callable[..., None]) -> None:
    torch("cuda", cuda=runtime(1), listing=MIG_LISTING)
    entries = find_devices()[1:]
    assert [entry["visible"][1] for entry in entries] == [
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb",
        "GPU-6e8cf3a1-0000-1111-2222-333344445555",
    ]
    assert [entry["mig"]["mig_slice"] for entry in entries] == ["1g.5gb", "1g.5gb", None]


# ---------------------------------------------------------------- present and not usable


def blocked(entries: Entries) -> tuple[str, str, str]:
    (entry,) = [entry for entry in entries if entry["blocked"]]
    assert entry["device"] != "cpu"
    reason, message, hint = entry["blocked"]
    assert reason in probe_payload.REASONS
    return reason, message, hint


ONE_GPU = PLAIN_LISTING.splitlines()[0] + "\n"


@pytest.mark.parametrize(
    "warning",
    [
        "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported driver",
        "CUDA initialization: Error 804: forward compatibility was attempted on non supported HW",
        "CUDA initialization: CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_a_driver_that_does_not_fit(torch: Callable[..., None], warning: str) -> None:
    torch("cuda", cuda=runtime(0, warning=warning), listing=ONE_GPU)
    reason, message, hint = blocked(find_devices())
    assert reason == "driver_mismatch"
    assert "NVIDIA H200" in message and warning[:40] in message
    assert "driver" in hint


def test_a_runtime_that_raises(torch: Callable[..., None]) -> None:
    torch("cuda", cuda=runtime(error=RuntimeError("all CUDA-capable devices are busy or unavailable")), listing=ONE_GPU)
    assert blocked(find_devices())[0] == "device_busy"


def test_a_gpu_that_a_cuda_build_does_not_see_without_saying_why(torch: Callable[..., None]) -> None:
    torch("cuda", cuda=runtime(0), listing=ONE_GPU)
    reason, message, hint = blocked(find_devices())
    assert reason == "device_missing"
    assert "the runtime found no device" in message
    assert "nvidia-smi" in hint and "12.8" in hint


def test_a_gpu_beside_a_cpu_build(torch: Callable[..., None]) -> None:
    torch("cpu", listing=ONE_GPU)
    reason, message, hint = blocked(find_devices())
    assert reason == "device_missing"
    assert "NVIDIA H200" in message and "CPU build" in message
    assert "CUDA build" in hint


def test_every_gpu_that_cannot_be_used_has_its_row(torch: Callable[..., None]) -> None:
    torch("cpu", listing=PLAIN_LISTING)
    assert [(entry["device"], bool(entry["blocked"])) for entry in find_devices()] == [
        ("cpu", False),
        ("cuda:0", True),
        ("cuda:1", True),
    ]


def test_an_apple_gpu_that_is_built_and_not_available(
    torch: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert blocked(find_devices())[0] == "mps_unavailable"


@pytest.fixture
def render_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Intel and an AMD card, as sysfs shows them."""
    for name, vendor in (("renderD128", "0x8086"), ("renderD129", "0x1002")):
        folder = tmp_path / name / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n", encoding="ascii")
    monkeypatch.setattr(
        probe_payload, "Path", lambda path, *rest: tmp_path if path == "/sys/class/drm" else Path(path, *rest)
    )


@pytest.mark.parametrize(
    ("build", "may_open", "reason", "word"),
    [
        ("cpu", True, "device_missing", "XPU build"),
        ("xpu", False, "render_permission", "usermod -aG render"),
        ("xpu", True, "device_missing", "Level Zero"),
    ],
)
def test_an_intel_gpu_that_torch_does_not_see(
    render_nodes: None, monkeypatch: pytest.MonkeyPatch, build: str, may_open: bool, reason: str, word: str
) -> None:
    monkeypatch.setattr("os.access", lambda *arguments: may_open)
    (entry,) = probe_payload._unusable_intel(build)
    assert entry["device"] == "xpu:0" and "renderD128" in entry["blocked"][1]
    assert entry["blocked"][0] == reason and word in entry["blocked"][2]


# ---------------------------------------------------------------- parts


def test_read_nvidia_list() -> None:
    assert [(gpu["name"], gpu["mig_slice"], gpu["mig_parent"]) for gpu in read_nvidia_list(MIG_LISTING)] == [
        ("NVIDIA A100-SXM4-40GB", None, None),
        (None, "1g.5gb", "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"),
        (None, "1g.5gb", "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"),
        ("NVIDIA A100-SXM4-40GB", None, None),
    ]
    assert read_nvidia_list("No devices found.\n") == []


def test_a_fact_that_fails_says_why_and_stands_alone() -> None:
    def fail() -> str:
        raise OSError(2, "No such file", "/proc/none")

    facts = Facts()
    facts.take("good", lambda: 3)
    facts.take("bad", fail)
    facts.take("empty", lambda: "")
    facts.take("nothing", lambda: None)
    facts.take("zero", lambda: 0)
    assert facts.values == {"good": 3, "bad": None, "empty": None, "nothing": None, "zero": 0}
    assert set(facts.unknown) == {"bad", "empty", "nothing"}
    assert "/proc/none" in facts.unknown["bad"]


def test_the_fingerprint_changes_with_the_hardware_only() -> None:
    facts = {
        "arch": "x86_64",
        "cpu_model": "A",
        "cpu_count": 4,
        "memory_bytes": 1,
        "machine_model": None,
        "vector_isa": "v",
    }
    gpu = {"device": "cuda:0", "backend": "cuda", "name": "H200", "uuid": "GPU-1"}
    one, covers = fingerprint(facts, [gpu])
    assert fingerprint({**facts, "torch_version": "2.13"}, [gpu])[0] == one
    for other in ({**facts, "cpu_count": 8}, {**facts, "vector_isa": "w"}):
        assert fingerprint(other, [gpu])[0] != one
    assert fingerprint(facts, [{**gpu, "uuid": "GPU-2"}])[0] != one
    assert "cuda:0.uuid" in covers and "cpu_model" in covers


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], ["cpu", "cuda:0", "cuda:1"]),
        (["cuda"], ["cuda:0", "cuda:1"]),
        (["cuda:1"], ["cuda:1"]),
        (["rocm"], ["cuda:1"]),
        (["cpu", "cuda:0"], ["cpu", "cuda:0"]),
        (["xpu"], []),
    ],
)
def test_selecting_devices(wanted: list[str], found: list[str]) -> None:
    entries = [
        {"device": "cpu", "backend": "cpu"},
        {"device": "cuda:0", "backend": "cuda"},
        {"device": "cuda:1", "backend": "rocm"},
    ]
    assert [entry["device"] for entry in entries if matches_device(entry, wanted)] == found


def test_json_has_no_word_for_infinity() -> None:
    value = {"a": float("inf"), "b": [1.5, float("nan")], "c": {"d": float("-inf")}, "e": "inf"}
    assert probe_payload.sayable(value) == {"a": None, "b": [1.5, None], "c": {"d": None}, "e": "inf"}
