"""Error texts as torch, Triton, compilers and drivers write them -> status, reason and the line to type."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import probe_payload
from probe_payload import _INSTALL, FAULTS, REASONS, STATUSES, describe_error, fault_of, how_it_died, mending

# What an error says (class and message, as describe_error gives them) -> status and reason.
TEXTS = [
    # the language
    ("RuntimeError: Dynamo is not supported on Python 3.14+", "unsupported", "python_too_new"),
    ("RuntimeError: Python 3.12+ not yet supported for torch.compile", "unsupported", "python_too_new"),
    ("RuntimeError: torch.compile is not supported on Python 3.15+", "unsupported", "python_too_new"),
    # the toolchain
    (
        "InductorError: InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None,)",
        "blocked",
        "no_cxx",
    ),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "blocked", "no_cc"),
    (
        "InductorError: FileNotFoundError: [Errno 2] No such file or directory: 'openssl'",
        "blocked",
        "no_openssl",
    ),
    ("/bin/sh: 1: openssl: not found", "blocked", "no_openssl"),
    (
        "CppCompileError: C++ compile error\n/tmp/x.cpp:3:10: fatal error: Python.h: No such file or directory",
        "blocked",
        "no_python_headers",
    ),
    ("/tmp/main.c:5:10: fatal error: 'Python.h' file not found", "blocked", "no_python_headers"),
    ("CppCompileError: C++ compile error\nfatal error: 'omp.h' file not found", "blocked", "no_openmp"),
    ("ld: library 'omp' not found", "blocked", "no_openmp"),
    ("/usr/bin/ld: cannot find -lgomp", "blocked", "no_openmp"),
    ("RuntimeError: Compiler: cl is not found.", "blocked", "no_msvc"),
    (
        "OMP: Error #15: Initializing libomp.dylib, but found libomp.dylib already initialized.",
        "crashed",
        "omp_duplicate",
    ),
    (
        "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /tmp/c.so)",
        "failed",
        "abi_mismatch",
    ),
    ("ImportError: libstdc++.so.6: version `CXXABI_1.3.13' not found", "failed", "abi_mismatch"),
    (
        "InductorError: OSError: /tmp/c.so: failed to map segment from shared object",
        "blocked",
        "noexec",
    ),
    ("PermissionError: [Errno 13] Permission denied: '/var/cache/torchinductor'", "blocked", "no_writable_dir"),
    ("OSError: [Errno 30] Read-only file system: '/srv/tmp'", "blocked", "no_writable_dir"),
    ("OSError: [Errno 28] No space left on device", "failed", "directory_size"),
    # the function's own troubles are not the host's
    ("PermissionError: [Errno 13] Permission denied: '/data/weights.bin'", "failed", "error"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/home/u/openssl/conf.py'", "failed", "error"),
    ("NotImplementedError: this op is not supported for torch.compile", "failed", "error"),
    # Triton and NVIDIA
    (
        "BackendCompilerFailed: backend='inductor' raised:\nRuntimeError: Cannot find a working triton installation.",
        "blocked",
        "triton_missing",
    ),
    ("InductorError: TritonMissing: Cannot find a working triton installation", "blocked", "triton_missing"),
    ("ModuleNotFoundError: No module named 'triton'", "blocked", "triton_missing"),
    (
        "ImportError: cannot import name 'AttrsDescriptor' from 'triton.compiler.compiler'",
        "blocked",
        "triton_mismatch",
    ),
    ("AttributeError: module 'triton.compiler' has no attribute 'triton_key'", "blocked", "triton_mismatch"),
    (
        "GPUTooOldForTriton: Found Tesla P100 which is too old to be supported by the triton GPU compiler",
        "unsupported",
        "gpu_too_old",
    ),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "unsupported",
        "arch_not_in_wheel",
    ),
    ("RuntimeError: HIP error: invalid device function", "unsupported", "arch_not_in_wheel"),
    ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "failed", "ptxas_too_old"),
    ("ptxas /tmp/x.ptx, line 5; error   : Feature '.bf16' requires .target sm_80 or higher", "failed", "ptxas_feature"),
    ("AssertionError: libcuda.so cannot found!", "blocked", "libcuda"),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "blocked", "libcuda"),
    (
        "UserWarning: CUDA initialization: Error 803: system has unsupported display driver / cuda driver combination",
        "blocked",
        "driver_mismatch",
    ),
    (
        "UserWarning: CUDA initialization: Error 804: forward compatibility was attempted on non supported HW",
        "blocked",
        "driver_mismatch",
    ),
    ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "blocked", "driver_mismatch"),
    (
        "AcceleratorError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "blocked",
        "device_busy",
    ),
    ("RuntimeError: the GPU is in exclusive-process compute mode", "blocked", "device_busy"),
    ("Failed to initialize NVML: Unknown Error", "blocked", "device_lost"),
    (
        "OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
        "failed",
        "out_of_resources",
    ),
    ("RuntimeError: No valid triton configs. OutOfMemoryError: out of resource", "failed", "out_of_resources"),
    ("CompilationError: atomic_add does not support bf16", "failed", "triton_dtype"),
    ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", "failed", "device_memory"),
    # Apple
    (
        "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.",
        "unsupported",
        "dtype",
    ),
    ("InductorError: AssertionError: Device mps not supported", "unsupported", "no_metal_backend"),
    ("SyntaxError: failed to compile \n#include <c10/metal/utils.h>", "failed", "metal_compile"),
    ("RuntimeError: MPS backend out of memory (MPS allocated: 18.13 GB)", "failed", "device_memory"),
    # Intel
    ("fatal error: level_zero/ze_api.h: No such file or directory", "blocked", "level_zero_headers"),
    ("fatal error: sycl/sycl.hpp: No such file or directory", "blocked", "sycl_toolchain"),
    ("RuntimeError: Required aspect fp64 is not supported on the device", "unsupported", "fp64"),
    ("RuntimeError: Triton Error [ZE]: 0x78000011", "failed", "ze_error"),
    ("RuntimeError: ZE_RESULT_ERROR_MODULE_BUILD_FAILURE", "failed", "igc_build"),
    # the rest
    ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "unsupported", "dtype"),
    ("MemoryError: ", "failed", "host_memory"),
    ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried", "failed", "host_memory"),
    ("OSError: [Errno 12] Cannot allocate memory", "failed", "host_memory"),
    ("ModuleNotFoundError: No module named 'torch'", "blocked", "no_torch"),
    ("InductorError: LoweringException: AssertionError: ", "failed", "compile_error"),
    ("InductorError: CppCompileError: C++ compile error", "failed", "compile_error"),
]


@pytest.mark.parametrize(("text", "status", "reason"), TEXTS, ids=[f"{n}-{row[2]}" for n, row in enumerate(TEXTS)])
def test_known_texts(text: str, status: str, reason: str) -> None:
    assert fault_of(text)[:2] == (status, reason)


def test_every_rule_is_exercised() -> None:
    assert {reason for _, _, reason in TEXTS} - {"error"} == {reason for _, _, reason, _ in FAULTS}


def test_the_table_uses_known_words() -> None:
    for _pattern, status, reason, hint in FAULTS:
        assert status in STATUSES
        assert reason in REASONS
        # What is blocked can be mended, and says how.
        assert status != "blocked" or hint, reason


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: expected a 2-D tensor",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)",
        "KeyError: 'exclusively'",
        "AttributeError: 'Cell' object has no attribute 'torch'",
    ],
)
def test_unknown_texts_keep_what_was_given(text: str) -> None:
    assert fault_of(text) == ("failed", "error", None)
    assert fault_of(text, "blocked", "canary") == ("blocked", "canary", None)


# ---------------------------------------------------------------- the mending line


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Linux machine whose PATH is one empty folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def has(folder: Path, program: str) -> None:
    (folder / program).write_text("#!/bin/sh\n", encoding="ascii")
    (folder / program).chmod(0o755)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("apt-get", "sudo apt-get install -y g++"),
        ("dnf", "sudo dnf install -y gcc-c++"),
        ("zypper", "sudo zypper install -y gcc-c++"),
        ("apk", "sudo apk add g++"),
        ("pacman", "sudo pacman -S gcc"),
    ],
)
def test_the_line_of_each_package_manager(machine: Path, program: str, line: str) -> None:
    has(machine, program)
    assert mending("cxx") == line
    assert fault_of("InvalidCxxCompiler: ") == ("blocked", "no_cxx", line)


@pytest.mark.parametrize("key", sorted(_INSTALL))
def test_without_a_package_manager_it_says_what_to_install(machine: Path, key: str) -> None:
    assert mending(key) == f"install {_INSTALL[key]['apt']} with this system's package manager"


def test_a_manager_that_has_no_such_package_is_passed_over(machine: Path) -> None:
    has(machine, "pacman")
    assert "package manager" in mending("headers")


def test_macos(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    has(machine, "brew")
    assert mending("cxx") == "xcode-select --install"
    assert mending("openmp") == "brew install libomp"


def test_torch_goes_into_the_python_that_missed_it() -> None:
    assert mending("torch") == f"{sys.executable} -m pip install torch"


def test_a_command_stays_as_it_is() -> None:
    assert mending("nvidia-smi") == "nvidia-smi"
    assert mending(None) is None


# ---------------------------------------------------------------- exceptions and exits


def test_what_caused_an_error_is_told_too() -> None:
    def fail() -> None:
        try:
            raise FileNotFoundError(2, "No such file or directory", "openssl")
        except FileNotFoundError as error:
            raise RuntimeError("backend raised") from error

    with pytest.raises(RuntimeError) as caught:
        fail()
    text = describe_error(caught.value)
    assert text.splitlines() == [
        "RuntimeError: backend raised",
        "FileNotFoundError: [Errno 2] No such file or directory: 'openssl'",
    ]
    assert fault_of(text)[1] == "no_openssl"


def test_an_error_that_causes_itself_ends() -> None:
    error = ValueError("x" * 9000)
    error.__cause__ = error
    assert len(describe_error(error)) < 3100


def report(**fields: object) -> dict[str, object]:
    return {"code": None, "signal": None, "ended_by": None, "oom_kills": 0, "printed": 0, **fields}


@pytest.mark.parametrize(
    ("fields", "status", "reason", "word"),
    [
        ({"signal": "SIGSEGV"}, "crashed", "signal", "SIGSEGV"),
        ({"signal": "SIGABRT"}, "crashed", "signal", "SIGABRT"),
        ({"code": 3}, "crashed", "exited", "code 3"),
        ({"code": 0}, "crashed", "exited", "code 0"),
        ({"signal": "SIGKILL", "ended_by": "deadline"}, "timeout", "hang", "deadline"),
        ({"signal": "SIGKILL", "ended_by": "output_size"}, "crashed", "output_size", "printed"),
        ({"signal": "SIGKILL", "ended_by": "directory_size"}, "crashed", "directory_size", "directory"),
        ({"signal": "SIGKILL", "oom_kills": 1}, "crashed", "out_of_memory", "memory"),
        ({"signal": "SIGKILL"}, "crashed", "signal", "SIGKILL"),
        ({"signal": "SIGXFSZ"}, "crashed", "file_size", "file"),
        ({"signal": "SIGXFSZ", "printed": 1 << 30}, "crashed", "output_size", "printed"),
    ],
)
def test_how_a_process_died(fields: dict[str, object], status: str, reason: str, word: str) -> None:
    found = how_it_died(report(**fields))
    assert found[:2] == (status, reason)
    assert word in found[2]
    assert status in STATUSES and reason in REASONS


def test_no_report_at_all_is_the_isolations_fault() -> None:
    assert how_it_died({})[:2] == ("failed", "isolation")


def test_two_openmp_runtimes_abort_with_a_hint() -> None:
    log = "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\n"
    status, reason, message, hint = how_it_died(report(signal="SIGABRT"), log)
    assert (status, reason) == ("crashed", "omp_duplicate")
    assert "SIGABRT" in message
    assert hint and "OpenMP" in hint


def test_reasons_that_the_source_uses_are_in_the_list() -> None:
    """Every reason given as a literal somewhere in the payload is a documented one."""
    import ast

    source = Path(probe_payload.__file__).read_text(encoding="utf-8")
    used = {
        keyword.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    assert used and used <= set(REASONS)
