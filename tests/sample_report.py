"""A small fleet with a bit of everything, made of real Inductor texts and real classification.

Six hosts: two CPU servers of different vector width, a Mac, two GPU boxes with different torches,
one device that is blocked, one host that cannot be reached, one that was cut short.  Machines,
times and failures are invented; code, kinds, kernels and evidence are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import probe_payload
from harness.findings import add
from harness.matrix import build, code_texts
from harness.records import (
    CellRecord,
    DeviceRecord,
    EndRecord,
    Environment,
    JobSummary,
    Outcome,
    Report,
    Result,
    RunManifest,
    RunRecord,
)

CODES = Path(__file__).with_name("data") / "codes"
STARTED, ENDED = "2026-11-30T09:14:00Z", "2026-11-30T09:16:21Z"
PAYLOAD = "5d" * 32


def text(name: str) -> str:
    """One of the texts of tests/data/codes."""
    return (CODES / name).read_text(encoding="utf-8")


def sha(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def avx2(value: str) -> str:
    """A text for AVX-512 as it is for AVX2: eight lanes instead of sixteen."""
    return value.replace("static_cast<int64_t>(16", "static_cast<int64_t>(8")


def cell(device: str, function: str, code: str | None = None, **fields: Any) -> CellRecord:
    """A cell as the payload writes it; with `code` it is classified by the payload's own classifier."""
    record: dict[str, Any] = {
        "record": "cell",
        "device": device,
        "function": function,
        "variant": "f32",
        "title": probe_payload.FUNCTIONS[function][0] if function in probe_payload.FUNCTIONS else function,
        "status": "not_run",
        "started": STARTED,
        "ended": ENDED,
        "repeat": ["python3", "probe_payload.py", "--device", device, "--function", function],
    }
    if code is not None:
        record |= _ran(code)
    return CellRecord.model_validate(record | fields)


def _ran(code: str) -> dict[str, Any]:
    found = probe_payload.classify(code)
    written, called = bool(found.kernels), bool(found.calls)
    status = {(True, False): "generated", (True, True): "mixed", (False, True): "extern_only"}
    return {
        "status": status.get((written, called), "view_only"),
        "kind": probe_payload.kind_of(found.kinds),
        "kinds": found.kinds,
        "graphs": [
            {
                "index": 0,
                "role": "inference",
                "wrapper": found.wrapper,
                "artifact": sha(code),
                "lines": len(code.splitlines()),
            }
        ],
        "kernels": [{"graph": 0, **kernel} for kernel in found.kernels],
        "calls": [{"graph": 0, **call} for call in found.calls],
        "evidence": [{"graph": 0, **item} for item in found.evidence],
        "route": "run_and_get_code",
        "routes": [
            {"name": "run_and_get_code", "codes": 1},
            {"name": "output_code_log", "codes": 1, "agrees": True},
            {"name": "structured_trace", "error": "no record came"},
        ],
        "graph_breaks": 0,
        "cache_hits": 0,
        "correctness": {"verdict": "close", "max_abs": 1.2e-7, "max_rel": 3e-6, "atol": 1e-5, "rtol": 1.3e-6},
        "phases": [{"name": "compile", "cpu_s": 4.81, "wall_s": 5.02}, {"name": "compare", "cpu_s": 0.01}],
        "phase": "done",
        "exit": {"code": 0, "memory_bytes": 512 * 2**20},
        "workers": 2,
    }


def environment(torch: str, **fields: Any) -> Environment:
    record = {
        "record": "environment",
        "torch_version": torch,
        "torch_build": "cpu",
        "triton_version": None,
        "python_version": "3.12.7",
        "os": "Linux",
        "arch": "x86_64",
        "cpu_count": 16,
        "cpu_granted": 16.0,
        "torch_threads": 8,
        "memory_bytes": 64 * 2**30,
        "cxx": "g++",
        "cxx_version": "12.2.0",
        "env_cleared": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"},
        "backends": [{"name": "cuda", "available": False, "reason": "this torch is built without CUDA"}],
        "unknown": {"machine_model": "no DMI table", "triton_version": "Triton is not installed"},
    }
    return Environment.model_validate(record | fields)


def device(label: str, backend: str, /, **fields: Any) -> DeviceRecord:
    record = {"record": "device", "device": label, "backend": backend, "index": 0, "status": "ok"}
    return DeviceRecord.model_validate(record | fields)


def result(
    env: Environment, devices: list[DeviceRecord], cells: list[CellRecord], *codes: str, cut: str = ""
) -> Result:
    counts: dict[str, int] = {}
    for entry in cells:
        counts[entry.status] = counts.get(entry.status, 0) + 1
    run = RunRecord(
        record="run",
        schema_version=probe_payload.SCHEMA_VERSION,
        payload_version="0.1.0",
        payload_sha256=PAYLOAD,
        argv=["probe_payload.py", "--out", "result.jsonl"],
        started=STARTED,
    )
    end = EndRecord(record="end", ended=ENDED, cells=len(cells), counts=counts)
    return Result(
        run=run,
        environment=env,
        devices=devices,
        artifacts={sha(code): code for code in codes},
        cells=cells,
        end=None if cut else end,
    )


def outcome(host: str, status: str = "answered", **fields: Any) -> Outcome:
    record = {
        "host": host,
        "target": "native",
        "status": status,
        "started": STARTED,
        "ended": ENDED,
        "payload_sha256": PAYLOAD,
        "argv": ("python3", "probe_payload.py", "--out", "result.jsonl"),
    }
    return Outcome.model_validate(record | fields)


FUNCTIONS = ("matmul", "pointwise", "softmax", "sort")


def _codes(folder: str) -> list[str]:
    return [text(f"{folder}/{name}.py") for name in FUNCTIONS]


def _all(device_name: str, codes: list[str]) -> list[CellRecord]:
    return [cell(device_name, name, code) for name, code in zip(FUNCTIONS, codes, strict=True)]


def fleet() -> dict[str, tuple[Outcome, Result | None]]:
    """Results by `host/target`, in the order of the inventory."""
    wide, cuda, mps = _codes("2.13-cpu"), _codes("2.13-cuda"), _codes("2.13-mps")
    narrow, older = [avx2(code) for code in wide], _codes("2.12.1-cuda")
    cpu = device("cpu", "cpu", name="EPYC 9354", capability="x86_64")
    h200 = device("cuda:0", "cuda", name="NVIDIA H200", capability="sm_90", memory_bytes=139 * 2**30, compute_units=132)
    t4 = device("cuda:0", "cuda", name="Tesla T4", capability="sm_75", unknown={"driver": "nvidia-smi is not there"})
    arc = device(
        "xpu:0", "xpu", status="blocked", reason="render_permission",
        message="user lab may not open /dev/dri/renderD128, so torch sees no XPU",
        hint='sudo usermod -aG render "$USER"',
    )  # fmt: skip
    t4_cells = [
        *_all("cuda:0", older)[:3],
        cell(
            "cuda:0", "sort", older[3], status="failed", reason="out_of_resources", phase="compile", correctness=None,
            message="OutOfResources: out of resource: shared memory, Required: 69632, Hardware limit: 65536",
            stderr_tail="Traceback (most recent call last):\n  ...\nOutOfResources: shared memory\n",
            exit={"code": 1},
        ),
    ]  # fmt: skip
    mac_cells = [
        *_all("mps", mps)[:3],
        cell("mps", "sort", mps[3], status="wrong", correctness={"verdict": "wrong", "max_abs": 0.031, "atol": 0.01}),
    ]
    return {
        "localhost/native": (outcome("localhost"), result(
            environment("2.13.0+cpu", vector_isa="avx2"), [cpu], _all("cpu", narrow), *narrow)),
        "cpu-epyc-01/native": (outcome("cpu-epyc-01"), result(
            environment("2.13.0+cpu", vector_isa="avx512"), [cpu], _all("cpu", wide), *wide)),
        "mac-m3/native": (outcome("mac-m3"), result(
            environment("2.13.0", arch="arm64", os="macOS 26.5.1", cxx="clang++", cxx_version="17.0.0"),
            [device("mps", "mps", name="Apple M3 Pro", capability="apple9")], mac_cells, *mps)),
        "gpu-h200/native": (outcome("gpu-h200"), result(
            environment("2.13.0+cu126", triton_version="3.7.1", vector_isa="avx512"),
            [cpu, h200], [*_all("cpu", wide), *_all("cuda:0", cuda)], *wide, *cuda)),
        "gpu-t4/native": (outcome("gpu-t4"), result(
            environment("2.12.1+cu126", triton_version="3.7.0", vector_isa="avx2"), [t4], t4_cells, *older)),
        "xpu-arc/native": (outcome("xpu-arc"), result(
            environment("2.13.0+xpu"), [arc], [])),
        "amd-mi300/native": (outcome(
            "amd-mi300", "unreachable", reason="unreachable", message="no answer on port 22 (3 tries, 15 s each)",
            hint="ssh -v amd-mi300"), None),
        "cpu-old/native": (outcome(
            "cpu-old", "partial", reason="deadline", message="the deadline of 600 s passed"), result(
            environment("2.13.0+cpu", vector_isa="avx2"), [cpu],
            [*_all("cpu", narrow)[:2], cell("cpu", "softmax", status="crashed", reason="signal", phase="compile",
                                            exit={"signal": "SIGSEGV"}, message="the process died")],
            *narrow[:2], cut="deadline")),
    }  # fmt: skip


def manifest(jobs: Mapping[str, object]) -> RunManifest:
    return RunManifest(
        run="20261130-0914-7f3a",
        harness_version="0.1.0",
        command=("atlas", "probe", "--all"),
        started=STARTED,
        jobs=tuple(
            JobSummary(host=key.split("/")[0], target=key.split("/")[1], transport="ssh", timeout=600.0) for key in jobs
        ),
    )


def sample() -> tuple[Report, dict[str, str]]:
    """The report of that fleet, with findings, and its generated texts."""
    results = fleet()
    return add(build(manifest(results), results, ended=ENDED)), code_texts(results)


# Fields whose words are ours or are checked by the records before a dialect sees them.
_CHECKED = set(
    """
    record host target status backend group groups artifact sha256 normal device function variant verdict role
    wrapper id kind kinds route phase key cells hosts language payload_sha256 result_sha256 fingerprint
    torch_build schema_version subject
    """.split()  # noqa: SIM905
)


def hostile(value: Any, poison: str, key: str = "") -> Any:
    """A dumped report in which every text that is a host's ends in `poison`."""
    if isinstance(value, dict):
        named = {"name"} if {"codes", "cpu_s", "available"} & value.keys() else set()
        # Another text than the code's own would lose the evidence its link.
        named |= {"text"} if "why" in value else set()
        return {
            name: item if name in _CHECKED - {"groups", "cells"} | named else hostile(item, poison, name)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if key in _CHECKED and isinstance(item, str) else hostile(item, poison, key) for item in value]
    return value + poison if value and isinstance(value, str) else value
