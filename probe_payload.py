#!/usr/bin/env python3
# /// script
# requires-python = ">=3.9"
# dependencies = ["torch>=2.1"]
# ///
"""What does torch.compile generate here?  One file, standard library and torch only.

Run by hand (`python probe_payload.py`, `uv run probe_payload.py`) it compiles three small
functions on every device of this machine, captures the code that Inductor wrote, says of which
kind it is and prints a report.  With `--out FILE` it also writes JSON Lines for a program to read.

The rooms of this file, in order:

    vocabulary   kinds, statuses, reasons: the words that every record uses
    functions    the probes and the inputs that they are compiled for
    classifier   generated text -> kinds, kernels, library calls, deciding lines   (no torch)
    faults       exceptions and exits -> status, reason, mending command           (no torch)
    facts        what this machine and this torch are
    capture      one compiled call, its code by three routes, what Dynamo counted
    tasks        what a child process does: facts, canary, cell
    isolation    guard, zygote: a crash or a hang costs one cell
    journal      JSON Lines, each written when it happens
    probe        the order of a run
    for people   the printed report
    agent        start, poll, cancel and clean a detached run on a host
    command line
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import hashlib
import importlib.util
import json
import logging
import os
import platform
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

VERSION = "0.1.0"
# Additive changes raise the second number; a reader refuses a first number above its own.
SCHEMA_VERSION = "1.0"

# ---------------------------------------------------------------- vocabulary

# kind -> the name that people read (the first four are the original probe's own words).
KINDS = {
    "triton": "Triton",
    "cpp": "C++ / OpenMP",
    "metal": "Metal / MPS",
    "extern": "extern kernel (no Inductor codegen)",
    "aten_fallback": "fallback",
    "custom_op": "custom operator",
    "cutlass": "CUTLASS",
    "ck": "Composable Kernel",
    "halide": "Halide",
    "cutedsl": "CuTe DSL",
    "pallas": "Pallas",
    "nv_universal_gemm": "NVIDIA universal GEMM",
    "flydsl": "FlyDSL",
    "unknown": "unknown generator",
}
# Kinds that are calls into a library or into eager ATen, not code that Inductor wrote.
CALLED_KINDS = ("extern", "aten_fallback", "custom_op")

STATUSES = {
    "generated": "ran; every kernel was generated",
    "mixed": "ran; some kernels were generated, some library operations were called",
    "extern_only": "ran; only library or ATen operations were called",
    "view_only": "ran; the graph holds no kernel and no call",
    "no_graph": "ran; there was nothing to compile",
    "eager_fallback": "asked to compile, eager ran instead",
    "cpu_fallback": "asked for this device, the CPU ran instead",
    "unsupported": "cannot work by design (dtype, capability, version)",
    "blocked": "the host is not ready; the mending command says what to do",
    "failed": "compiling or running raised an error",
    "wrong": "ran, but the result differs from eager beyond the tolerance",
    "crashed": "the process died",
    "timeout": "killed at its deadline",
    "flaky": "attempts disagree",
    "skipped": "left out by a filter",
    "not_run": "the run ended before its turn",
}
# Statuses under which the compiled call ran, so that a number may stand beside them.
RAN_STATUSES = ("generated", "mixed", "extern_only", "view_only", "no_graph")

REASONS = {
    "graph_break": "a graph break left nothing to compile",
    "suppressed_error": "Dynamo suppressed a compile error and ran eager",
    "recompile_limit": "Dynamo hit its recompile limit and ran eager",
    "bf16_unsupported": "this GPU has no native bfloat16; Dynamo skipped the frame",
    "compile_disabled": "Dynamo did not look at the function at all",
    "code_not_captured": "a graph was compiled, but no route gave its code",
    "no_torch": "torch is not installed",
    "torch_import": "importing torch failed",
    "python_too_new": "this torch.compile does not support this Python",
    "no_cxx": "no working C++ compiler",
    "no_cc": "no C compiler for Triton's launcher",
    "no_openssl": "the openssl program is missing; Inductor's header cache calls it",
    "no_python_headers": "Python.h is missing",
    "no_openmp": "the OpenMP header or library is missing",
    "no_msvc": "the Microsoft C++ compiler is missing",
    "omp_duplicate": "two OpenMP runtimes were loaded into one process",
    "abi_mismatch": "the built library needs a newer C++ runtime",
    "noexec": "the work directory does not allow code to be mapped",
    "no_writable_dir": "a cache or work directory cannot be written",
    "triton_missing": "Triton is not installed or does not work",
    "triton_mismatch": "torch and Triton do not fit each other",
    "gpu_too_old": "the GPU is too old for Triton",
    "arch_not_in_wheel": "this torch has no kernels for the GPU",
    "ptxas_too_old": "ptxas does not know this GPU",
    "ptxas_feature": "the GPU lacks a feature that the kernel uses",
    "libcuda": "libcuda.so.1 was not found",
    "driver_mismatch": "the GPU driver and the CUDA runtime do not fit each other",
    "device_busy": "the device is busy or in exclusive mode",
    "device_lost": "the driver lost the device",
    "device_missing": "a driver reports the device, this torch build cannot use it",
    "out_of_resources": "no kernel configuration fits the device's resources",
    "triton_dtype": "Triton refuses the dtype",
    "no_metal_backend": "this torch has no Metal code generation (2.7 brought it)",
    "mps_virtualized": "MPS reports itself available but cannot allocate",
    "mps_unavailable": "MPS is built but not available",
    "metal_compile": "the generated Metal does not compile",
    "sycl_toolchain": "SYCL headers, runtime or compiler are missing",
    "level_zero_headers": "level_zero/ze_api.h is missing",
    "ze_error": "Level Zero returned an error",
    "fp64": "the device has no float64",
    "igc_build": "the Intel graphics compiler failed",
    "render_permission": "this user may not open the render device",
    "dtype": "the device does not support the dtype",
    "canary": "the device cannot allocate, add and read back",
    "device_memory": "the device ran out of memory",
    "host_memory": "the machine ran out of memory",
    "compile_error": "Inductor raised an error",
    "error": "an error was raised",
    "pack": "the function's own file failed to load or to make its inputs",
    "eager_error": "the eager call failed too",
    "signal": "killed by a signal",
    "exited": "the process ended itself without a result",
    "out_of_memory": "the kernel killed the process for memory",
    "file_size": "a file grew past the limit of the cell",
    "directory_size": "the cell's directory grew past its limit",
    "output_size": "the cell printed more than its limit",
    "neighbour": "failed beside a cell that exhausted the machine",
    "deadline": "the deadline passed",
    "hang": "did not end by its deadline",
    "tolerance": "the difference from eager exceeds the tolerance of the dtype",
    "interrupted": "the run was interrupted",
    "journal_full": "the disk that holds the result file is full",
    "result_lost": "the process ended well but its result could not be read",
    "isolation": "the process that starts the cells died",
}

PHASES = ("start", "inputs", "compile", "eager", "compare", "done")
ROUTES = ("run_and_get_code", "run_and_get_triton_code", "output_code_log", "structured_trace")

# ----------------------------------------------------------------- functions


def _matmul(a, b):
    return a @ b


def _pointwise(a, b, c):
    return (a * b + c).relu()


def _softmax(a):
    import torch

    return torch.softmax(a, -1)


def _random(*shapes):
    """Inputs of these shapes, drawn on the CPU so that every device gets the same numbers."""

    def make(device, dtype):
        import torch

        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator).to(dtype).to(device) for shape in shapes]

    return make


# name -> (title, function, inputs(device, dtype)).  The original's three, at the original's sizes:
# a library-shaped operation, a fusible chain, a reduction.  A file given by --functions holds a
# dictionary of the same form under the same name.
FUNCTIONS = {
    "matmul": ("matmul (a@b)", _matmul, _random((64, 64), (64, 64))),
    "pointwise": ("pointwise (a*b+c).relu()", _pointwise, _random((1024,), (1024,), (1024,))),
    "softmax": ("reduction softmax(a,-1)", _softmax, _random((64, 128))),
}


def list_functions(pack):
    """Names and titles of the functions: the built-in ones, or those of a file, read without running it.

    Raises ValueError with file and line where the file holds no dictionary FUNCTIONS.
    """
    if pack is None:
        return {name: entry[0] for name, entry in FUNCTIONS.items()}
    tree = ast.parse(Path(pack).read_text(encoding="utf-8"), str(pack))
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(t, "id", None) for t in node.targets] == ["FUNCTIONS"]:
            if not isinstance(node.value, ast.Dict):
                raise ValueError("%s:%d: FUNCTIONS must be a dictionary display" % (pack, node.lineno))
            names = {
                ast.literal_eval(key): _title(key, value) for key, value in zip(node.value.keys, node.value.values)
            }
            for name in names:
                if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,119}", str(name)):
                    raise ValueError("%s:%d: %r: a name is letters, digits and . _ : + -" % (pack, node.lineno, name))
            return {name: str(title)[:400] for name, title in names.items()}
    raise ValueError("%s: no FUNCTIONS = {name: (title, function, inputs)} in this file" % pack)


def _title(key, value):
    first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else key
    return first.value if isinstance(first, ast.Constant) else ast.literal_eval(key)


def load_functions(pack):
    """The functions themselves; runs the pack's file, so only a cell's own process calls this."""
    if pack is None:
        return FUNCTIONS
    spec = importlib.util.spec_from_file_location("probe_pack", pack)
    module = importlib.util.module_from_spec(spec)
    sys.modules["probe_pack"] = module
    spec.loader.exec_module(module)
    return module.FUNCTIONS


# ---------------------------------------------------------------- classifier
#
# Inductor's output for one graph is a Python module (or, with cpp_wrapper, one that holds a C++
# program in a string).  Kernels stand in triple-quoted strings given to a generator, library calls
# in the wrapper around them.  Headers import AsyncCompile, extern_kernels and empty_strided_cuda
# into every file, comments name ATen operations, and assert_size_stride carries operation names in
# strings: none of these may decide.  So the text is divided first, then matched by rules.

# What `async_compile.<method>(` or its like generates.
GENERATORS = {
    "triton": "triton",
    "cpp": "cpp",
    "cpp_pybinding": "cpp",
    "metal": "metal",
    "compile_mps_shader": "metal",
    "cuda": "cutlass",
    "xpu": "cutlass",
    "rocm": "ck",
    "halide": "halide",
    "cutedsl": "cutedsl",
    "pallas": "pallas",
    "nv_universal_gemm": "nv_universal_gemm",
    "flydsl": "flydsl",
}
# Methods that write no kernel: `wait` joins, the others choose among kernels defined beside them.
NOT_GENERATORS = ("wait", "multi_kernel", "size_hint_multi_kernel", "use_process_pool", "warm_pool", "wakeup")

_DEFINITION = re.compile(r"^(?P<name>\w+) *= *(?P<callee>[\w.]+)\(")
_QUOTE = re.compile(r"[rR]?('''|\"\"\")")
_HEURISTIC = re.compile(r"^\s*@(?:triton_heuristics\.)?(\w+)\($")
_TRITON_CATEGORIES = (
    "pointwise", "reduction", "persistent_reduction", "cooperative_reduction", "template", "foreach",
    "split_scan", "user_autotune",
)  # fmt: skip
_CPP_DEFINITION = re.compile(r'^extern "C"\s+(?:\S+\s+)?void\s+(?P<name>\w+)\(')
_METAL_DEFINITION = re.compile(r"^\s*kernel void (?P<name>\w+)\(")
_NESTED = re.compile(r"^\s*(?:R\"\w*\()?async_compile\.(?P<method>\w+)\(\s*[rR]?['\"](?P<name>\w+)['\"]")
_ORIGINAL_ATEN = re.compile(r"Original ATen: \[([^\[\]]*)\]")
_CALLED = re.compile(r"\b(\w+)(?:\.run)?\(")
_AOT_ID = re.compile(r"^# AOT ID: \['\d+_(inference|forward|backward)'\]", re.MULTILINE)
# An escape outside a string is taken too: else a line of nothing but \' costs its length squared.
_STRING = re.compile(r"\\.|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")

# Calls in a Python wrapper: pattern -> kind.  The first that matches at a place decides.
_PYTHON_CALLS = (
    (re.compile(r"(?<![\w.])extern_kernels\.(\w+)\("), "extern", "extern_kernels.%s"),
    (re.compile(r"(?<![\w.])torch\.ops\.(aten\.[\w.]+)\("), "aten_fallback", "%s"),
    (re.compile(r"(?<![\w.])(aten\.[\w.]+)\("), "aten_fallback", "%s"),
    (re.compile(r"(?<![\w.])torch\.ops\.((?:mkldnn|mkl|onednn|quantized)\.[\w.]+)\("), "extern", "%s"),
    (re.compile(r"(?<![\w.])torch\.ops\.((?!aten\.|inductor\.|prims\.)\w+\.[\w.]+)\("), "custom_op", "%s"),
)
# Calls in a C++ wrapper.  `_out` variants write into a buffer of Inductor's: the library calls.
_CPP_CALLS = (
    (re.compile(r"\b(aoti_torch_(?:cpu|cuda|xpu|mps)_\w+_out)\("), "extern", "%s"),
    (re.compile(r"\b(aoti_torch_(?:cpu|cuda|xpu|mps)_(?:mkldnn|mkl|_mkl|onednn)\w*)\("), "extern", "%s"),
    (re.compile(r"\b(aoti_torch_(?:cpu|cuda|xpu|mps)_\w+)\("), "aten_fallback", "%s"),
    (re.compile(r"\b(aoti_torch_proxy_executor_call_function)\("), "aten_fallback", "%s"),
    (re.compile(r"\b(at::\w+_out)\("), "extern", "%s"),
    (re.compile(r"\b(at::_ops::\w+)::call\("), "aten_fallback", "%s"),
)


class Classification:
    """What one generated text holds.  Line numbers count from 1.

    kernels: dicts name, kind, category, line, lines, operations, openmp, vectorized
    calls: dicts name, kind, count, lines          evidence: dicts line, kind, why, text
    """

    def __init__(self):
        self.wrapper = "python"
        self.role = "unknown"
        self.kernels = []
        self.calls, self._by_name = [], {}
        self.evidence = []

    @property
    def kinds(self):
        """Kind -> how many kernels or calls are of it."""
        found = Counter(kernel["kind"] for kernel in self.kernels)
        for call in self.calls:
            found[call["kind"]] += call["count"]
        return dict(sorted(found.items()))

    def decide(self, number, kind, why, text):
        self.evidence.append({"line": number, "kind": kind, "why": why, "text": text.strip()[:200]})

    def call(self, number, kind, name, text):
        call = self._by_name.setdefault((name, kind), {"name": name, "kind": kind, "count": 0, "lines": []})
        if not call["count"]:
            self.calls.append(call)
        call["count"] += 1
        call["lines"].append(number)
        self.decide(number, kind, "calls %s" % name, text)


def classify(text):
    """Classification of one generated text; a pure function of it, and it never raises on odd text."""
    found = Classification()
    lines = text.split("\n")
    role = _AOT_ID.search(text)
    if role:
        found.role = role.group(1)
    if re.search(r"^cpp_wrapper_src = \(", text, re.MULTILINE) or "CppWrapperCodeCache.load" in text:
        found.wrapper = "cpp"
    bodies, host = _divide(lines)
    for first, last in bodies:
        _read_kernel(found, lines, first, last)
    for number in host:
        _read_host_line(found, lines, number)
    found.evidence.sort(key=lambda item: item["line"])
    _name_operations(found, lines, host)
    return found


def kind_of(kinds):
    """The one kind of a set, `mixed` for several, None for none."""
    return next(iter(kinds)) if len(kinds) == 1 else ("mixed" if kinds else None)


def _divide(lines):
    """(first, last) line numbers of each kernel definition, and the numbers of the wrapper's lines.

    A module docstring holds a second copy of the kernels under autotune_at_compile_time: it is neither.
    Once the C++ program of a cpp_wrapper module has begun, its lines are all the wrapper's.
    """
    bodies, host, is_program = [], [], False
    number, total = 1, len(lines)
    while number <= total:
        line = lines[number - 1]
        if _generator(line):
            bodies.append((number, _end_of_string(lines, number)))
            number = bodies[-1][1] + 1
        elif _QUOTE.match(line) and not is_program and not _begins_program(lines, number):
            number = _end_of_string(lines, number) + 1
        else:
            is_program = is_program or _begins_program(lines, number)
            host.append(number)
            number += 1
    return bodies, host


def _generator(line):
    """The generator that a line hands a kernel to, or None.

    Besides `async_compile.<generator>(` any module-level call that opens a triple-quoted string
    counts: a generator of a later release must show up as unknown, not vanish.
    """
    definition = _DEFINITION.match(line)
    if not definition:
        return None
    callee = definition.group("callee")
    if callee.startswith("async_compile."):
        method = callee.split(".", 1)[1]
        return None if method in NOT_GENERATORS else method
    return callee if _QUOTE.search(line) else None


def _begins_program(lines, number):
    """True if the string that starts here is the C++ program of a cpp_wrapper module."""
    return number > 1 and lines[number - 2].endswith(" = (") and bool(_QUOTE.match(lines[number - 1]))


def _end_of_string(lines, number):
    """Line on which the first triple-quoted string from `number` on ends; `number` if there is none."""
    opening = _QUOTE.search(lines[number - 1])
    start = number
    if not opening and number < len(lines):  # the string may start on the next line
        start, opening = number + 1, _QUOTE.search(lines[number])
    if not opening:
        return number
    quote, rest = opening.group(1), lines[start - 1][opening.end() :]
    while quote not in rest:
        start += 1
        if start > len(lines):
            return len(lines)
        rest = lines[start - 1]
    return start


def _read_kernel(found, lines, first, last):
    """One `name = async_compile.method(...)` definition."""
    method = _generator(lines[first - 1])
    kind = GENERATORS.get(method, "unknown")
    kernel = _new_kernel(_DEFINITION.match(lines[first - 1]).group("name"), kind, first, last)
    found.decide(first, kind, "kernel %s by %s" % (kernel["name"], method), lines[first - 1])
    _read_body(found, kernel, lines, first, last)
    found.kernels.append(kernel)


def _read_body(found, kernel, lines, first, last):
    """What the text of a kernel says of it."""
    if kernel["kind"] == "triton":
        for number in range(first, last + 1):
            heuristic = _HEURISTIC.match(lines[number - 1])
            if heuristic and heuristic.group(1) in _TRITON_CATEGORIES:
                kernel["category"] = heuristic.group(1)
                found.decide(number, "triton", "category %s" % heuristic.group(1), lines[number - 1])
                break
    if kernel["kind"] == "cpp":
        _read_cpp_body(found, kernel, lines, first, last)


def _new_kernel(name, kind, first, last):
    return {
        "name": name, "kind": kind, "category": None, "line": first, "lines": last - first + 1,
        "operations": [], "openmp": None, "vectorized": None,
    }  # fmt: skip


def _read_cpp_body(found, kernel, lines, first, last):
    """Parallel? Vectorised? A GEMM template?  Small sizes and one thread give neither of the first two."""
    for key, needle in (("openmp", "#pragma omp"), ("vectorized", "at::vec::"), ("micro_gemm", "micro_gemm")):
        number = next((n for n in range(first, last + 1) if needle in lines[n - 1]), None)
        if key == "micro_gemm":
            kernel["category"] = key if number else None
        else:
            kernel[key] = number is not None
        if number:
            found.decide(number, "cpp", key, lines[number - 1])


def _read_host_line(found, lines, number):
    """One line of the wrapper: library calls, and in C++ the kernels that it defines in itself."""
    line = lines[number - 1]
    if line.lstrip().startswith(("#", "//")):
        return
    if found.wrapper == "cpp":
        _read_cpp_wrapper_line(found, lines, number)
    elif "multi_kernel(" in line and _DEFINITION.match(line):
        found.decide(number, "triton", "kernel chosen at run time", line)
    code = _STRING.sub("''", line)
    taken = set()
    for pattern, kind, name in _CPP_CALLS if found.wrapper == "cpp" else _PYTHON_CALLS:
        for match in pattern.finditer(code):
            if match.end() not in taken:
                taken.add(match.end())
                found.call(number, kind, name % match.group(1), line)


def _read_cpp_wrapper_line(found, lines, number):
    """Kernels inside a C++ wrapper: C++ and Metal functions, and generators called from its strings."""
    line = lines[number - 1]
    for kind, pattern in (("cpp", _CPP_DEFINITION), ("metal", _METAL_DEFINITION), (None, _NESTED)):
        match = pattern.match(line)
        if not match or (kind == "cpp" and not _is_definition(lines, number)):
            continue
        if kind is None and match.group("method") in NOT_GENERATORS:
            continue
        nested = kind or GENERATORS.get(match.group("method"), "unknown")
        last = _end_of_string(lines, number) if kind is None else _end_of_block(lines, number)
        kernel = _new_kernel(match.group("name"), nested, number, last)
        found.decide(number, nested, "kernel %s in the C++ wrapper" % kernel["name"], line)
        _read_body(found, kernel, lines, number, last)
        found.kernels.append(kernel)


def _is_definition(lines, number):
    """True if the C++ function head that starts here is followed by a body, not by a semicolon."""
    for line in lines[number - 1 : number + 200]:
        if ")" in line:
            return not line.rstrip().endswith(";")
    return False


def _end_of_block(lines, number):
    """Line of the closing brace at the margin, or the one before the next kernel; else the last line."""
    for last in range(number + 1, len(lines) + 1):
        if lines[last - 1].startswith("}"):
            return last
        if _CPP_DEFINITION.match(lines[last - 1]) or _METAL_DEFINITION.match(lines[last - 1]):
            return last - 1
    return len(lines)


def _name_operations(found, lines, host):
    """Give each kernel the ATen operations of the comment above its definition or its first call."""
    by_name = {kernel["name"]: kernel for kernel in found.kernels}
    by_line = {kernel["line"]: kernel for kernel in found.kernels}
    library = {number for call in found.calls for number in call["lines"]}
    comment = None
    for number in host:
        line = lines[number - 1]
        kernel = by_line.get(number + 1)
        if line.lstrip().startswith(("#", "//")):
            original = _ORIGINAL_ATEN.search(line)
            if original:
                comment = [word.strip() for word in original.group(1).split(",") if word.strip()]
        elif comment and not kernel:
            kernel = next((by_name[name] for name in _CALLED.findall(line) if name in by_name), None)
        if kernel and comment:
            kernel["operations"] = kernel["operations"] or comment
        if kernel or number in library:  # a comment speaks of the next kernel or library call, whichever comes
            comment = None


def excerpt(text, found, length=15):
    """(first line number, lines) of the part worth showing: where the first kernel, else call, starts."""
    lines = text.split("\n")
    if found.kernels:
        first = min(kernel["line"] for kernel in found.kernels)
    elif found.calls:
        first = min(number for call in found.calls for number in call["lines"])
        first = max(1, first - 3)
    else:
        first = next((n for n, line in enumerate(lines, 1) if line.lstrip().startswith("def call(")), 1)
    shown = lines[first - 1 : first - 1 + length]
    if not found.kernels and "" in shown:  # the wrapper's function ends at the first empty line
        shown = shown[: shown.index("")]
    return first, shown


# -------------------------------------------------------------------- faults

# pattern over "Class: message" (and, for a process that died, its last lines) -> status, reason, hint.
# The hint is a key of _INSTALL, or a command.  Sources: Inductor's and Triton's own error texts.
FAULTS = (
    (r"Python 3\.\d+\+? (is )?not (yet )?supported|(Dynamo|torch\.compile) is not supported on Python", "unsupported", "python_too_new", None),
    (r"InvalidCxxCompiler|No working C\+\+ compiler", "blocked", "no_cxx", "cxx"),
    (r"No such file or directory: '(/\S*/)?openssl'|openssl: (command )?not found", "blocked", "no_openssl", "openssl"),
    (r"Python\.h: No such file|'Python\.h' file not found", "blocked", "no_python_headers", "headers"),
    (r"omp\.h'? ?:? ?(file not found|No such file)|cannot find -l(i?omp5?|gomp)\b|library '?omp'? not found", "blocked", "no_openmp", "openmp"),
    (r"Compiler: cl is not found", "blocked", "no_msvc", "run from a Developer Command Prompt (vcvars64.bat)"),
    (r"Failed to find C compiler", "blocked", "no_cc", "cxx"),
    (r"OMP: Error #15", "crashed", "omp_duplicate", "remove one of the two OpenMP runtimes from this environment"),
    (r"(GLIBCXX|CXXABI)_[\d.]+' not found", "failed", "abi_mismatch", None),
    (r"failed to map segment from shared object", "blocked", "noexec", "choose a work directory on a file system mounted without noexec"),
    (r"Cannot find a working triton|TritonMissing|No module named '?triton", "blocked", "triton_missing", "pip install triton"),
    (r"cannot import name 'AttrsDescriptor'|no attribute 'triton_key'|cannot import name 'triton_key'", "blocked", "triton_mismatch", "install the triton that this torch was released with"),
    (r"GPUTooOldForTriton|too old to be supported by the triton GPU compiler", "unsupported", "gpu_too_old", None),
    (r"no kernel image is available|invalid device function", "unsupported", "arch_not_in_wheel", None),
    (r"ptxas fatal\s*: Value '\S+' is not defined", "failed", "ptxas_too_old", "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas"),
    (r"Feature '\S+' requires \.target|ptxas error", "failed", "ptxas_feature", None),
    (r"libcuda\.so cannot found|cannot find -lcuda|libcuda\.so\.1", "blocked", "libcuda", "sudo ldconfig"),
    (r"Error 80[34]|forward compatibility|driver (version )?(is insufficient|mismatch)|Driver/library version mismatch", "blocked", "driver_mismatch", "reboot, or install the driver that fits this CUDA"),
    (r"devices are busy or unavailable|exclusive[- ](process|thread|mode)", "blocked", "device_busy", "nvidia-smi"),
    (r"NVML: Unknown Error|GPU is lost|fallen off the bus", "blocked", "device_lost", "restart the container, or reboot"),
    (r"OutOfResources|No valid triton configs|out of resource", "failed", "out_of_resources", None),
    (r"does not support (bf16|bfloat16|fp64|float64|fp16)|atomic_add does not support", "failed", "triton_dtype", None),
    (r"Device mps not supported|mps.* not (yet )?supported .*[Ii]nductor", "unsupported", "no_metal_backend", "upgrade torch to 2.7 or newer"),
    (r"SyntaxError: failed to compile|newLibraryWithSource", "failed", "metal_compile", None),
    (r"level_zero/ze_api\.h", "blocked", "level_zero_headers", "install the Level Zero headers (level-zero-dev)"),
    (r"sycl/\S+\.hpp'? ?(:|file not found)|SYCL_HOME|icpx?: (command )?not found", "blocked", "sycl_toolchain", "install the oneAPI compiler that this torch names"),
    (r"Required aspect fp64 is not supported", "unsupported", "fp64", None),
    (r"ZE_RESULT_ERROR_MODULE_BUILD_FAILURE", "failed", "igc_build", None),
    (r"Triton Error \[ZE\]", "failed", "ze_error", None),
    (r"Cannot convert a MPS Tensor to float64|doesn't support float64|does not support dtype|[Ll]ow precision dtypes not supported|not implemented for '(Half|BFloat16|Char|ComplexHalf)'", "unsupported", "dtype", None),
    (r"CUDA out of memory|OutOfMemoryError|MPS backend out of memory|HIP out of memory|XPU out of memory", "failed", "device_memory", None),
    (r"MemoryError|Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator: can't allocate", "failed", "host_memory", None),
    (r"No space left on device|Disk quota exceeded", "failed", "directory_size", "df -h"),
    (r"Read-only file system|Permission denied[^\n]*(torchinductor|inductor|triton|\.cache)", "blocked", "no_writable_dir", "choose a work directory that this user can write"),
    (r"No module named 'torch'", "blocked", "no_torch", "torch"),
    (r"InductorError|BackendCompilerFailed|CppCompileError|LoweringException", "failed", "compile_error", None),
)  # fmt: skip
_FAULTS = tuple((re.compile(pattern), status, reason, hint) for pattern, status, reason, hint in FAULTS)

# what is missing -> package manager -> the line to type.
_INSTALL = {
    "cxx": {"apt": "g++", "dnf": "gcc-c++", "zypper": "gcc-c++", "apk": "g++", "pacman": "gcc"},
    "openssl": {"apt": "openssl", "dnf": "openssl", "zypper": "openssl", "apk": "openssl", "pacman": "openssl"},
    "headers": {"apt": "python3-dev", "dnf": "python3-devel", "zypper": "python3-devel", "apk": "python3-dev"},
    "openmp": {"apt": "libgomp1", "dnf": "libgomp", "zypper": "libgomp1", "brew": "libomp"},
}
_MANAGERS = (
    ("apt", "apt-get", "sudo apt-get install -y %s"),
    ("dnf", "dnf", "sudo dnf install -y %s"),
    ("zypper", "zypper", "sudo zypper install -y %s"),
    ("apk", "apk", "sudo apk add %s"),
    ("pacman", "pacman", "sudo pacman -S %s"),
    ("brew", "brew", "brew install %s"),
)


def mending(key):
    """The line to type on this machine for a hint of FAULTS; None stays None."""
    if key == "torch":
        return "%s -m pip install torch" % sys.executable
    if key not in _INSTALL:
        return key
    if sys.platform == "darwin" and key != "openmp":
        return "xcode-select --install"
    for manager, program, line in _MANAGERS:
        if manager in _INSTALL[key] and shutil.which(program):
            return line % _INSTALL[key][manager]
    return "install %s with this system's package manager" % _INSTALL[key]["apt"]


def fault_of(text, status="failed", reason="error"):
    """(status, reason, hint) for an error's text; the given ones where no rule knows it."""
    for pattern, known_status, known_reason, hint in _FAULTS:
        if pattern.search(text):
            return known_status, known_reason, mending(hint)
    return status, reason, None


def describe_error(error):
    """`Class: message` of an exception and of what caused it, bounded."""
    parts, seen = [], set()
    while error is not None and id(error) not in seen and len(parts) < 6:
        seen.add(id(error))
        parts.append("%s: %s" % (type(error).__name__, str(error).strip()[:3000]))
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


def first_line(text, limit=300):
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:limit]


# --------------------------------------------------------------------- facts


def now():
    """ISO 8601, UTC, milliseconds."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


class Facts:
    """Values by name; a fact that fails is None and `unknown` says why, so that each stands alone."""

    def __init__(self):
        self.values = {}
        self.unknown = {}

    def take(self, name, read, *arguments):
        try:
            value = read(*arguments)
        except Exception as error:
            value = None
            self.unknown[name] = first_line(describe_error(error))
        else:
            if value is None or value == "":
                value = None
                self.unknown[name] = "not reported on this system"
        self.values[name] = value
        return value


def run_program(*argv, timeout=10):
    """First-class output of a small program; raises what subprocess raises."""
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=timeout, check=False,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    if done.returncode:
        raise RuntimeError("%s ended with %d: %s" % (argv[0], done.returncode, first_line(done.stderr)))
    return done.stdout.strip()


def host_facts(cleared):
    """What can be known without torch; field names are those of the environment record."""
    facts = Facts()
    facts.take("python_version", platform.python_version)
    facts.take("python_implementation", platform.python_implementation)
    facts.take("python_executable", lambda: sys.executable)
    facts.take("os", _os_name)
    facts.take("kernel", platform.release)
    facts.take("arch", platform.machine)
    facts.take("machine_model", _machine_model)
    facts.take("cpu_model", _cpu_model)
    facts.take("cpu_count", os.cpu_count)
    facts.take("cpu_granted", granted_cores)
    facts.take("memory_bytes", lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    facts.take("memory_limit_bytes", _memory_limit)
    compiler = facts.take("cxx", _cxx)
    facts.take("cxx_version", lambda: first_line(run_program(compiler, "--version")) if compiler else None)
    facts.values["env_set"] = {key: _shown(key, value) for key, value in sorted(os.environ.items()) if _ours(key)}
    facts.values["env_cleared"] = {key: _shown(key, value) for key, value in cleared.items()}
    return facts


def _shown(name, value):
    """A variable's value, unless its name says that it is a secret."""
    return "(hidden)" if re.search(r"TOKEN|SECRET|PASS|CREDENTIAL|_KEY|URL", name) else value[:2000]


def _ours(name):
    return name.startswith(
        (
            "TORCH",
            "TRITON",
            "PYTORCH",
            "OMP_",
            "KMP_",
            "MKL_",
            "CUDA_VISIBLE",
            "HIP_VISIBLE",
            "HSA_",
            "ZE_AFF",
            "ATEN_",
            "CXX",
        )
    )


def _read(path):
    return Path(path).read_text(encoding="utf-8", errors="replace").strip("\x00\n ")


def _os_name():
    if sys.platform == "darwin":
        return "macOS " + platform.mac_ver()[0]
    release = dict(line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line)
    return release["PRETTY_NAME"].strip('"')


def _machine_model():
    if sys.platform == "darwin":
        return run_program("sysctl", "-n", "hw.model")
    for path in ("/sys/class/dmi/id/product_name", "/proc/device-tree/model"):
        if os.path.exists(path):
            return _read(path)
    return None


def _cpu_model():
    if sys.platform == "darwin":
        return run_program("sysctl", "-n", "machdep.cpu.brand_string")
    fields = [line.split(":", 1) for line in _read("/proc/cpuinfo").splitlines() if ":" in line]
    named = {key.strip().lower(): value.strip() for key, value in fields}
    return named.get("model name") or named.get("cpu model") or named.get("cpu") or named.get("cpu part")


def granted_cores():
    """Cores that affinity and the cgroup's quota leave to this process."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    for quota in _cgroup_quotas():
        cores = min(cores, quota)
    return max(cores, 0.01)


def _cgroup_paths(controller):
    """Directories of this process's cgroup, leaf to root, for v1's controller and for v2."""
    if not os.path.exists("/proc/self/cgroup"):
        return
    for line in _read("/proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        root = "/sys/fs/cgroup" if not names else "/sys/fs/cgroup/" + controller
        if names and controller not in names.split(","):
            continue
        leaf = Path(root + path)
        yield from (folder for folder in (leaf, *leaf.parents) if str(folder).startswith("/sys/fs/cgroup"))


def _cgroup_quotas():
    for folder in _cgroup_paths("cpu"):
        if (folder / "cpu.max").exists():
            quota, period = _read(folder / "cpu.max").split()
        elif (folder / "cpu.cfs_quota_us").exists():
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        else:
            continue
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)


def _memory_limit():
    limits = []
    for folder in _cgroup_paths("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (folder / name).exists() and _read(folder / name).isdigit():
                limits.append(int(_read(folder / name)))
    real = [limit for limit in limits if limit < 2**60]
    return min(real) if real else None


def oom_kills():
    """How many processes the kernel has killed for memory in this process's cgroup, or None."""
    for folder in _cgroup_paths("memory"):
        for name in ("memory.events", "memory.oom_control"):
            if (folder / name).exists():
                for line in _read(folder / name).splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
    return None


def _cxx():
    return os.environ.get("CXX") or next(
        (found for found in map(shutil.which, ("g++", "clang++", "c++")) if found), None
    )


def fingerprint(facts, devices):
    """(sha256, list of what it covers): two machines of equal hardware share it only if all of this is equal."""
    covers = ["arch", "machine_model", "cpu_model", "cpu_count", "memory_bytes", "vector_isa"]
    data = {name: facts.get(name) for name in covers}
    for device in devices:
        if device["backend"] == "cpu":
            continue
        for field in ("name", "capability", "memory_bytes", "uuid", "mig_slice"):
            covers.append("%s.%s" % (device["device"], field))
            data[covers[-1]] = device.get(field)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest(), covers


def torch_facts():
    """What torch says of itself; touches drivers, so it runs in a child with a deadline."""
    import torch

    facts = Facts()
    facts.take("torch_version", lambda: str(torch.__version__))
    facts.take("torch_git", lambda: torch.version.git_version)
    build, version = torch_build(torch)
    facts.values.update(torch_build=build, torch_build_version=version)
    facts.take("torch_default_backend", lambda: _default_backend(torch))
    facts.take("torch_threads", torch.get_num_threads)
    facts.take("torch_interop_threads", torch.get_num_interop_threads)
    facts.take("torch_cpu_capability", lambda: torch.backends.cpu.get_cpu_capability())
    facts.take("triton_version", lambda: __import__("triton").__version__)
    facts.values["backends"] = [_backend_fact(torch, name, build) for name in ("cuda", "mps", "xpu")]
    return facts


def torch_build(torch):
    """(cpu | cuda | rocm | xpu, version of it or None)."""
    for build, attribute in (("rocm", "hip"), ("cuda", "cuda"), ("xpu", "xpu")):
        version = getattr(torch.version, attribute, None)
        if version:
            return build, str(version)
    return "cpu", None


def _default_backend(torch):
    import inspect

    read = getattr(torch.compiler, "get_default_backend", None)  # 2.13+
    value = read() if read else inspect.signature(torch.compile).parameters["backend"].default
    return value if isinstance(value, str) else repr(value)


def _backend_fact(torch, name, build):
    """available True or False, as the backend's own runtime says; why not, where it says so."""
    shown = "rocm" if name == "cuda" and build == "rocm" else name
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module = torch.backends.mps if name == "mps" else getattr(torch, name, None)
            available = bool(module is not None and module.is_available())
        why = None if available else first_line("; ".join(str(w.message) for w in caught)) or _why_not(torch, name)
    except Exception as error:
        available, why = False, first_line(describe_error(error))
    return {"name": shown, "available": available, "reason": why}


def _why_not(torch, name):
    if name == "mps":
        return (
            "this torch was built without MPS"
            if not torch.backends.mps.is_built()
            else "MPS is built but not available"
        )
    build = torch_build(torch)[0]
    compiled = build in ("cuda", "rocm") if name == "cuda" else build == "xpu"
    return "the runtime found no device" if compiled else "this torch is a %s build" % build.upper()


def find_devices():
    """Devices worth a canary, and those that a driver reports but this torch cannot use.

    Each: device (torch's name), backend, index, visible (variable and value that leave only this one),
    blocked (reason, message, hint) or None.
    """
    import torch

    build = torch_build(torch)[0]
    found = [{"device": "cpu", "backend": "cpu", "index": None, "visible": None, "blocked": None}]
    cuda = _backend_fact(torch, "cuda", build)  # torch's name for ROCm too
    if cuda["available"]:
        found.extend(_cuda_devices(torch, cuda["name"]))
    if not (cuda["available"] and build == "cuda"):
        found.extend(_unusable_nvidia(torch, build, cuda, first=len(found) - 1))
    if not (cuda["available"] and build == "rocm"):
        found.extend(_unusable_amd(build, cuda, first=len(found) - 1))
    if _backend_fact(torch, "xpu", build)["available"]:
        found.extend(_indexed("xpu", "xpu", torch.xpu.device_count(), "ZE_AFFINITY_MASK"))
    else:
        found.extend(_unusable_intel(build))
    mps = _backend_fact(torch, "mps", build)
    if mps["available"]:
        found.append({"device": "mps", "backend": "mps", "index": None, "visible": None, "blocked": None})
    elif sys.platform == "darwin" and platform.machine() == "arm64":
        blocked = (
            "mps_unavailable",
            mps["reason"],
            "log in to the graphical session once; sw_vers must say 14 or newer",
        )
        found.append({"device": "mps", "backend": "mps", "index": None, "visible": None, "blocked": blocked})
    return found


def _indexed(name, backend, count, variable):
    """One entry an index.  A variable that is already set is narrowed, not replaced."""
    given = [part for part in os.environ.get(variable, "").split(",") if part]
    return [
        {
            "device": "%s:%d" % (name, index), "backend": backend, "index": index, "blocked": None,
            "visible": (variable, given[index] if index < len(given) else str(index)),
        }
        for index in range(count)
    ]  # fmt: skip


def _cuda_devices(torch, backend):
    variable = "CUDA_VISIBLE_DEVICES"
    if backend == "rocm" and ("HIP_VISIBLE_DEVICES" in os.environ or variable not in os.environ):
        variable = "HIP_VISIBLE_DEVICES"  # HIP honours both, its own first
    slices = [gpu for gpu in nvidia_gpus() if gpu["mig_parent"]] if backend == "cuda" else []
    if slices and variable not in os.environ:
        # A process sees one MIG instance at a time, chosen by UUID: each is a device of its own.
        whole = {gpu["mig_parent"] for gpu in slices}
        usable = [gpu for gpu in nvidia_gpus() if gpu["uuid"] not in whole]
        return [
            {"device": "cuda:%d" % index, "backend": "cuda", "index": index, "blocked": None,
             "visible": (variable, gpu["uuid"]), "mig": gpu}
            for index, gpu in enumerate(usable)
        ]  # fmt: skip
    by_uuid = {gpu["uuid"]: gpu for gpu in slices}
    devices = _indexed("cuda", backend, torch.cuda.device_count(), variable)
    return [dict(device, mig=by_uuid.get(device["visible"][1])) for device in devices]


def nvidia_gpus():
    """What `nvidia-smi -L` lists: name, uuid, mig_parent (uuid), mig_slice.  Empty without a driver."""
    if not shutil.which("nvidia-smi"):  # a container may have the devices and not the program
        listed = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        return [{"name": _read(path).split("\n")[0].partition(":")[2].strip(), "uuid": None, "mig_parent": None,
                 "mig_slice": None} for path in listed]  # fmt: skip
    try:
        listing = run_program("nvidia-smi", "-L", timeout=20)
    except (RuntimeError, OSError, subprocess.SubprocessError):
        return []
    return read_nvidia_list(listing)


def read_nvidia_list(listing):
    """Parse `nvidia-smi -L`."""
    gpus, parent = [], None
    for line in listing.splitlines():
        gpu = re.match(r"GPU \d+: (.+) \(UUID: (\S+)\)", line)
        part = re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)", line)
        if gpu:
            parent = gpu.group(2)
            gpus.append({"name": gpu.group(1), "uuid": parent, "mig_parent": None, "mig_slice": None})
        elif part:
            gpus.append({"name": None, "uuid": part.group(2), "mig_parent": parent, "mig_slice": part.group(1)})
    return gpus


def _unusable_nvidia(torch, build, fact, first):
    """GPUs that NVIDIA's driver reports and this torch cannot use, numbered from `first`."""
    if build == "cuda":
        _, reason, hint = fault_of(fact["reason"] or "", "blocked", "device_missing")
        hint = hint or "nvidia-smi; compare its CUDA version with torch's %s" % torch.version.cuda
    else:
        reason, hint = "device_missing", "install a CUDA build of torch, see https://pytorch.org/get-started"
    message = "the driver reports %s, torch (%s build) cannot use it: %s"
    return [
        {"device": "cuda:%d" % (first + index), "backend": "cuda", "index": index, "visible": None, "name": gpu["name"],
         "blocked": (reason, message % (gpu["name"], build, fact["reason"] or "it sees other devices only"), hint)}
        for index, gpu in enumerate(gpu for gpu in nvidia_gpus() if not gpu["mig_parent"])
    ]  # fmt: skip


def _unusable_amd(build, fact, first):
    """One device where AMD's compute driver is loaded and this torch cannot use it."""
    if not os.path.exists("/dev/kfd"):
        return []
    hint = (
        "sudo usermod -aG render,video $USER  # then log in again"
        if build == "rocm"
        else "install a ROCm build of torch"
    )
    message = "/dev/kfd is there, torch (%s build) sees no AMD GPU: %s" % (
        build,
        fact["reason"] or "it sees other devices only",
    )
    return [{"device": "cuda:%d" % first, "backend": "rocm", "index": 0, "visible": None,
             "blocked": ("device_missing", message, hint)}]  # fmt: skip


def _unusable_intel(build):
    """Intel GPUs with a render node while torch says that there is no XPU."""
    nodes = [node for node in sorted(Path("/sys/class/drm").glob("renderD*")) if _vendor(node) == "0x8086"]
    found = []
    for index, node in enumerate(nodes):
        device = "/dev/dri/" + node.name
        if build != "xpu":
            blocked = ("device_missing", "%s is an Intel GPU, torch is a %s build" % (device, build),
                       "install an XPU build of torch, see https://pytorch.org/get-started")  # fmt: skip
        elif not os.access(device, os.R_OK | os.W_OK):
            blocked = ("render_permission", "this user may not open %s" % device,
                       "sudo usermod -aG render,video $USER  # then log in again")  # fmt: skip
        else:
            blocked = ("device_missing", "%s opens, but torch's XPU runtime finds no device" % device,
                       "install the Level Zero GPU driver (libze-intel-gpu1)")  # fmt: skip
        found.append(
            {"device": "xpu:%d" % index, "backend": "xpu", "index": index, "visible": None, "blocked": blocked}
        )
    return found


def _vendor(node):
    path = node / "device" / "vendor"
    return _read(path) if path.exists() else None


def device_facts(device, entry):
    """Facts of one accelerator, in a process that sees only it; field names of the device record."""
    import torch

    facts = Facts()
    backend = entry["backend"]
    if backend == "cpu":
        facts.take("name", lambda: _cpu_model() or platform.processor() or platform.machine())
        facts.take("capability", lambda: torch.backends.cpu.get_cpu_capability())
    elif backend == "mps":
        facts.take("name", _apple_gpu)
        facts.take("memory_bytes", lambda: torch.mps.recommended_max_memory())
        facts.take("compute_units", _apple_gpu_cores)
    else:
        module = torch.xpu if backend == "xpu" else torch.cuda
        properties = module.get_device_properties(0)
        facts.take("name", lambda: properties.name)
        facts.take("capability", _capability, backend, properties)
        facts.take("memory_bytes", lambda: properties.total_memory)
        facts.take(
            "compute_units", lambda: getattr(properties, "multi_processor_count", None) or properties.gpu_eu_count
        )
        facts.take("warp_size", lambda: getattr(properties, "warp_size", None) or max(properties.sub_group_sizes))
        facts.take("shared_memory_bytes", lambda: getattr(properties, "shared_memory_per_block_optin", None)
                   or getattr(properties, "shared_memory_per_block", None) or properties.local_mem_size)  # fmt: skip
        facts.take("uuid", lambda: str(getattr(properties, "uuid", None) or "") or None)
        facts.take("driver", _driver, backend, properties)
    mig = entry.get("mig") or {}
    facts.values.update(mig_parent=mig.get("mig_parent"), mig_slice=mig.get("mig_slice"))
    return facts


def _capability(backend, properties):
    if backend == "rocm":
        return properties.gcnArchName
    if backend == "xpu":
        return str(getattr(properties, "architecture", "") or properties.name)
    return "sm_%d%d" % (properties.major, properties.minor)


def _driver(backend, properties):
    if backend == "xpu":
        return properties.driver_version
    if backend == "rocm":
        return _read("/sys/module/amdgpu/version")
    return first_line(run_program("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", timeout=20))


def _apple_gpu():
    return "%s GPU (Metal / MPS)" % run_program("sysctl", "-n", "machdep.cpu.brand_string")


def _apple_gpu_cores():
    report = json.loads(run_program("system_profiler", "-json", "SPDisplaysDataType", timeout=20))
    return int(report["SPDisplaysDataType"][0]["sppci_cores"])


# ------------------------------------------------------------------- capture


class _Collector(logging.Handler):
    """Keeps the generated texts that pass through one logger.

    Each text is also written to the cell's directory at once: a cell that dies while it runs has
    still said what was generated for it.
    """

    def __init__(self, read, folder=None):
        super().__init__(logging.DEBUG)
        self.read, self.folder, self.codes = read, folder, []

    def emit(self, record):
        text = self.read(record)
        if text is not None:
            if self.folder is not None:
                Path(self.folder, "code-%04d.txt" % len(self.codes)).write_text(
                    text, encoding="utf-8", errors="replace"
                )
            self.codes.append(text)


def _logged_code(record):
    """The text of an output_code record; 2.1 also logs a path, which starts otherwise."""
    if not str(record.msg).startswith("Output code: "):
        return None
    return str(record.args[0]) if record.args else str(record.msg).split("\n", 1)[-1]


def _traced_code(record):
    metadata = getattr(record, "metadata", None)
    return (
        getattr(record, "payload", None) if isinstance(metadata, dict) and "inductor_output_code" in metadata else None
    )


@contextlib.contextmanager
def _listening(names, handler):
    """Attach a handler to loggers for a while.  set_logs() is no way: TORCH_LOGS makes it a no-op."""
    loggers = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    for logger, _ in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for logger, level in loggers:
            logger.removeHandler(handler)
            logger.setLevel(level)


class Captured:
    """codes in order, the route that gave them, what each route gave, the call's value or error."""

    def __init__(self):
        self.codes, self.route, self.routes = [], None, []
        self.value = self.error = None
        self.called = False


def capture(fn, inputs, route=None, folder=None):
    """Compile and run `fn(*inputs)` once and keep every generated text.

    The helper makes the call; the log handler and the trace handler listen to the same call, so a
    route that is missing or raises costs no second compile.  `route` forces one of ROUTES.
    """
    import torch
    import torch._dynamo
    import torch._inductor.codecache
    import torch._inductor.graph  # both names of the output_code logger exist from here on

    compiled = torch.compile(fn, backend="inductor")
    kept = Captured()

    def call(*arguments):
        kept.called = True
        try:
            kept.value = compiled(*arguments)
        except Exception as error:
            kept.error = error
            raise
        return kept.value

    torch._dynamo.reset()
    loggers = ("torch._inductor.graph.__output_code", "torch._inductor.codecache.__output_code")
    gave = {}
    logged, traced = _Collector(_logged_code, folder), _Collector(_traced_code)
    with _listening(loggers, logged), _listening(("torch.__trace",), traced):
        for name in ROUTES[:2] if route is None else (route,) if route in ROUTES[:2] else ():
            gave[name] = _by_helper(name, call, inputs, kept)
            if kept.called:
                break
        if not kept.called:
            with contextlib.suppress(Exception):  # kept.error has it
                call(*inputs)
    gave["output_code_log"] = (logged.codes, None)
    gave["structured_trace"] = (traced.codes, None)
    _choose(kept, gave, route)
    return kept


def _by_helper(name, call, inputs, kept):
    """(texts or None, error or None) of one of Inductor's own helpers."""
    try:
        import torch._inductor.utils as utils

        given = getattr(utils, name)(call, *inputs)
        codes = [given] if isinstance(given, str) else list(given[1])
        return [code for code in codes if code.strip()], None
    except Exception as error:
        return None, "the compiled call raised" if error is kept.error else first_line(describe_error(error))


def _choose(kept, gave, forced):
    """Keep the route with the most texts, the helper first: from 2.10 on it drops identical ones."""
    order = [forced] if forced else [name for name in ROUTES if gave.get(name, (None,))[0] is not None]
    best = max(order, key=lambda name: len(gave[name][0] or ()), default=None)
    kept.codes = list(gave[best][0] or ()) if best else []
    kept.route = best if kept.codes else None
    mine = [_comparable(code) for code in kept.codes]
    for name in ROUTES:
        if name not in gave:
            continue
        codes, error = gave[name]
        agrees = None if codes is None or not kept.codes else [_comparable(code) for code in codes] == mine
        kept.routes.append(
            {"name": name, "codes": None if codes is None else len(codes), "error": error, "agrees": agrees}
        )


def _comparable(code):
    """A text without the graph number and the temporary paths, which differ by route."""
    code = re.sub(r"^# AOT ID: .*$", "", code, flags=re.MULTILINE)
    return re.sub(r"/\S*(?:torchinductor|inductor|tmp)\S*/", "<path>/", code).strip()


def prepare_vector_isa():
    """Settle the vector ISA the cheap way: the best that works, not all that do.  Returns its name.

    valid_vec_isa_list() compiles test programs for every ISA that the CPU names (nine compilations,
    ten seconds), best first, and Inductor then takes the first that worked.  So the tests after the
    first success are left out; the list is cached by Inductor.  A forced capability needs them all.
    """
    import torch._inductor.config as config

    try:
        import torch._inductor.cpu_vec_isa as isa_module
    except ImportError:  # up to 2.4
        import torch._inductor.codecache as isa_module
    if os.environ.get("ATEN_CPU_CAPABILITY") or config.cpp.simdlen is not None:
        return str(isa_module.pick_vec_isa()) or "scalar"
    works = []

    class Lazy:
        def __init__(self, isa):
            self.isa = isa

        def __str__(self):
            return str(self.isa)

        def __bool__(self):
            if not works and self.isa:  # the test compiles
                works.append(self.isa)
            return self.isa in works

    supported = isa_module.supported_vec_isa_list
    isa_module.supported_vec_isa_list = [Lazy(isa) for isa in supported]
    try:
        valid = isa_module.valid_vec_isa_list()
    finally:
        isa_module.supported_vec_isa_list = supported
    valid[:] = [getattr(isa, "isa", isa) for isa in valid]  # the very list that Inductor caches
    return str(isa_module.pick_vec_isa()) or "scalar"


# --------------------------------------------------------------------- tasks
#
# A task is a dictionary that the parent sends to a zygote; each runs in a process of its own, in a
# directory of its own, and leaves result.json there.

# dtype -> (atol, rtol) between the compiled and the eager result.
TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-5, 1e-4),
    "complex64": (1e-5, 1e-4),
    "complex128": (1e-7, 1e-7),
    "float16": (1e-3, 1e-2),
    "bfloat16": (1e-2, 1.6e-2),
}
CODE_LIMIT = 2_000_000  # bytes of one text that a result keeps
DEFAULT_VARIANT = "float32"


def run_task(task):
    """Run one task in this process and write its result.json atomically."""
    folder = Path(task["dir"])
    try:
        result = {"discover": task_discover, "canary": task_canary, "warm": task_warm, "cell": task_cell}[task["kind"]](
            task
        )
    except Exception as error:
        text = describe_error(error)
        status, reason, hint = fault_of(text)
        result = {
            "error": {"status": status, "reason": reason, "message": first_line(text), "hint": hint, "text": text}
        }
    write_json(folder / "result.json", result)


def write_json(path, value):
    """Whole or not at all."""
    temporary = Path(str(path) + ".part")
    temporary.write_text(json.dumps(value, ensure_ascii=True), encoding="ascii")
    os.replace(temporary, path)


def task_discover(task):
    facts = torch_facts()
    return {"facts": facts.values, "unknown": facts.unknown, "devices": find_devices()}


def task_canary(task):
    """Allocate, add, read back; then the device's own facts."""
    import torch

    name = _visible_name(task)
    one = torch.ones(4, device=name)
    read_back = (one + one).cpu().tolist()
    if read_back != [2.0] * 4:
        raise RuntimeError("1 + 1 on %s gave %r" % (name, read_back))
    facts = device_facts(name, task["entry"])
    return {"facts": facts.values, "unknown": facts.unknown}


def task_warm(task):
    """What every CPU cell would repeat: the vector ISA, the precompiled header, the imports."""
    return warm_up(ahead=False)


def warm_up(ahead=True):
    """What every CPU cell would repeat: the ISA, the precompiled header, the imports, a first compile.

    Few elements: a parallel loop here would hang the first one of every fork.  `ahead` forks a child
    that builds the header meanwhile; not where forking is unsafe.
    Returns the ISA and what took how many wall seconds.
    """
    import torch

    torch.manual_seed(0)
    marks = [time.monotonic()]
    builder = _build_header_ahead() if ahead else None
    import torch._inductor.compile_fx
    import torch._inductor.utils

    isa = prepare_vector_isa()
    marks.append(time.monotonic())
    tiny = torch.compile(lambda x: x + 1, backend="inductor")
    get_code = getattr(torch._inductor.utils, "get_code", None)  # 2.4+: generates and builds nothing
    get_code(tiny, torch.zeros(2)) if get_code else tiny(torch.zeros(2))
    torch._dynamo.reset()
    marks.append(time.monotonic())
    if builder:
        _wait_or_kill(builder, IMPORT_DEADLINE)
    marks.append(time.monotonic())
    names = ("vector_isa", "first_codegen", "waiting_for_header")
    return {"vector_isa": isa, "seconds": {name: marks[i + 1] - marks[i] for i, name in enumerate(names)}}


def _wait_or_kill(pid, seconds):
    end = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


# A kernel that Inductor compiles with the flags of its vectorised ones.
_HEADER_USER = """#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(float* out_ptr0)
{
    at::vec::Vectorized<float>(1.0f).store(out_ptr0);
}
"""


def _build_header_ahead():
    """Start the header's build (from torch 2.8 on) for the ISA that the CPU names, while the ISA is tested.

    If the test decides otherwise the header is built again: a wrong guess costs time, nothing else.
    Returns the child's pid, or None where there is nothing to build.
    """
    try:
        import torch._inductor.codecache as codecache
        import torch._inductor.config as config
        import torch._inductor.cpu_vec_isa as isa_module
        from torch._inductor.async_compile import AsyncCompile
    except ImportError:
        return None
    build_header = getattr(codecache, "_precompile_header", None)
    if not getattr(config, "cpp_cache_precompile_headers", False) or build_header is None:
        return None
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        for isa in isa_module.supported_vec_isa_list:
            type(isa).__bool__ = lambda self: True  # this child only guesses: no test

        def build_and_leave(*arguments, **options):
            build_header(*arguments, **options)
            os._exit(0)  # the kernel that wanted it is not needed

        codecache._precompile_header = build_and_leave
        AsyncCompile().cpp_pybinding(["float*"], _HEADER_USER)
    finally:
        os._exit(0)


def _visible_name(task):
    """The device's name in a process that sees only it."""
    return re.sub(r":\d+$", ":0", task["entry"]["device"])


class _Clock:
    """CPU seconds, and wall seconds where no other cell runs beside, by phase; says where it is."""

    def __init__(self, folder, alone):
        self.path, self.alone, self.phases = Path(folder, "phase"), alone, []
        self.name = None
        self.enter("start")

    def enter(self, name):
        self.leave()
        self.name, self.started = name, (self._cpu(), time.monotonic())
        self.path.write_text(name, encoding="ascii")

    def leave(self):
        if self.name not in (None, "start", "done"):
            wall = round(time.monotonic() - self.started[1], 4) if self.alone else None
            self.phases.append({"name": self.name, "cpu_s": round(self._cpu() - self.started[0], 4), "wall_s": wall})

    @staticmethod
    def _cpu():
        usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def task_cell(task):
    """One function on one device.  Returns the cell's own fields and its artifacts."""
    clock = _Clock(task["dir"], task["workers"] == 1)
    clock.enter("inputs")
    import torch
    import torch._dynamo
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    if task["entry"]["backend"] == "cpu" and not task["forked"]:
        prepare_vector_isa()
    torch._dynamo.config.suppress_errors = False
    try:
        _, fn, make_inputs = load_functions(task["pack"])[task["function"]]
        dtype = getattr(torch, task["variant"])

        def fresh():
            torch.manual_seed(0)
            return make_inputs(_visible_name(task), dtype)

        inputs, again = fresh(), fresh()
    except Exception as error:
        return {"cell": _failed(error, "pack")}
    counters.clear()
    metrics.reset()
    clock.enter("compile")
    torch.manual_seed(0)
    said = _Collector(lambda record: record.getMessage())
    said.setLevel(logging.WARNING)
    with _warnings_too(said.codes), _attached(("torch._dynamo", "torch._inductor"), said):
        kept = capture(fn, inputs, task["route"], task["dir"])
    cell, artifacts = describe_codes(kept.codes)
    cell.update(route=kept.route, routes=kept.routes, **_counted(counters))
    clock.enter("eager")
    torch.manual_seed(0)
    expected, eager_error = _attempt(fn, again)
    clock.enter("compare")
    wrote = bool(counters["inductor"] or metrics.generated_kernel_count)
    _judge(cell, kept, counters, wrote, "\n".join(said.codes))
    if kept.error is None and eager_error is None:
        cell["correctness"] = compare((kept.value, inputs), (expected, again))
        if cell["correctness"]["verdict"] == "wrong" and _is_random(fn, fresh(), (expected, again)):
            said = "the function draws random numbers, and Inductor draws them in its own way"
            cell["correctness"] = {"verdict": "not_compared", "message": said}
        if cell["correctness"]["verdict"] == "wrong":
            cell.update(status="wrong", reason="tolerance", message=cell["correctness"]["message"])
    elif eager_error is not None and kept.error is not None and cell["reason"] in ("error", "compile_error"):
        cell.update(reason="eager_error", message="eager fails too: " + first_line(describe_error(eager_error)))
    clock.enter("done")
    cell["phases"] = clock.phases
    return {"cell": cell, "artifacts": artifacts}


@contextlib.contextmanager
def _attached(names, handler):
    """Add a handler without touching levels."""
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)


@contextlib.contextmanager
def _warnings_too(texts):
    """Append the texts of Python warnings; Dynamo says some things only there."""
    shown = warnings.showwarning
    warnings.showwarning = lambda message, *rest, **more: texts.append(str(message))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *rest, **more: texts.append(str(message))
            yield
    finally:
        warnings.showwarning = shown


def _attempt(fn, arguments):
    try:
        return fn(*arguments), None
    except Exception as error:
        return None, error


def _is_random(fn, arguments, eager):
    """True if eager itself gives something else with another seed."""
    import torch

    torch.manual_seed(1)
    value, error = _attempt(fn, arguments)
    return error is None and compare((value, arguments), eager)["verdict"] == "wrong"


def _failed(error, reason="error"):
    """Fields of a cell whose own code raised."""
    text = describe_error(error)
    status, known, hint = fault_of(text, "failed", reason)
    if reason == "pack" and status == "failed":
        known = "pack"
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-4000:]
    return {"status": status, "reason": known, "hint": hint, "message": first_line(text), "stderr_tail": trace}


def describe_codes(codes):
    """Fields graphs, kernels, calls, evidence, kinds, kind of a cell, and the artifacts by hash."""
    cell = {"graphs": [], "kernels": [], "calls": [], "evidence": []}
    artifacts, kinds = {}, Counter()
    for index, code in enumerate(codes):
        code = code.encode("utf-8", "replace")[:CODE_LIMIT].decode("utf-8", "replace")
        sha = hashlib.sha256(code.encode("utf-8")).hexdigest()
        artifacts[sha] = code
        found = classify(code)
        cell["graphs"].append({"index": index, "role": found.role, "wrapper": found.wrapper, "artifact": sha,
                               "lines": code.count("\n") + 1})  # fmt: skip
        for field in ("kernels", "calls", "evidence"):
            cell[field].extend(dict(item, graph=index) for item in getattr(found, field))
        kinds.update(found.kinds)
    cell["kinds"] = dict(sorted(kinds.items()))
    cell["kind"] = kind_of(cell["kinds"])
    return cell, artifacts


def _counted(counters):
    breaks = counters["graph_break"]
    return {
        "graph_breaks": sum(breaks.values()),
        "break_reasons": [first_line(str(reason)) for reason in breaks][:50],
        "cache_hits": counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
    }


def _judge(cell, kept, counters, wrote, said):
    """Status and reason of a cell from what the compiled call did; a wrong result comes after.

    `wrote`: Inductor worked on a graph.  It hands one of dead code back as it came, without a text.
    """
    if kept.error is not None:
        cell.update(_failed(kept.error))
        return
    recompiled = re.search(r"hit config\.(recompile|cache_size)_limit", said)
    kinds = set(cell["kinds"])
    called = {kind for kind in kinds if kind in CALLED_KINDS}
    frames, aot, graphs = counters["frames"], counters["aot_autograd"], counters["stats"]["unique_graphs"]
    if recompiled:
        status, reason = "eager_fallback", "recompile_limit"
    elif "does not support bfloat16 compilation natively" in said:
        status, reason = "eager_fallback", "bf16_unsupported"
    elif aot["not_ok"]:  # the text may be known all the same: it was written before the build failed
        status, reason = "eager_fallback", "suppressed_error"
    elif kinds:
        status, reason = ("extern_only" if kinds == called else "mixed" if called else "generated"), None
    elif cell["graphs"]:
        status, reason = "view_only", None
    elif graphs and wrote:
        status, reason = "failed", "code_not_captured"
    elif cell["graph_breaks"]:
        status, reason = "no_graph", "graph_break"
    elif frames["total"] > frames["ok"]:
        status, reason = "eager_fallback", "suppressed_error"
    elif not frames["total"]:
        status, reason = "eager_fallback", "compile_disabled"
    else:
        status, reason = "no_graph", None
    cell.update(status=status, reason=reason, message=REASONS.get(reason))


def compare(compiled, eager):
    """The correctness record of two structures of tensors, results and mutated inputs together."""
    from torch.utils._pytree import tree_flatten

    left, right = tree_flatten(compiled)[0], tree_flatten(eager)[0]
    worst = {"verdict": "equal", "max_abs": 0.0, "max_rel": 0.0, "atol": None, "rtol": None, "message": None}
    if len(left) != len(right):
        return dict(worst, verdict="wrong", message="compiled gave %d values, eager %d" % (len(left), len(right)))
    for one, other in zip(left, right):
        found = _compare_values(one, other)
        for figure in ("max_abs", "max_rel"):
            worst[figure] = max(worst[figure], found.get(figure) or 0.0)
        order = ("equal", "close", "wrong")
        if order.index(found["verdict"]) > order.index(worst["verdict"]):
            worst.update((key, found.get(key)) for key in ("verdict", "atol", "rtol", "message"))
    return worst


def _compare_values(one, other):
    import torch

    if not isinstance(other, torch.Tensor) or not isinstance(one, torch.Tensor):
        same = type(one) is type(other) and (one is other or one == other)
        message = None if same else "%s is not %s" % (repr(one)[:300], repr(other)[:300])
        return {"verdict": "equal" if same else "wrong", "message": message}
    if one.device.type != other.device.type:
        return {"verdict": "wrong", "message": "compiled gave it on %s, eager on %s" % (one.device, other.device)}
    if one.shape != other.shape or one.dtype != other.dtype:
        form = "%s of %s" % (tuple(one.shape), one.dtype), "%s of %s" % (tuple(other.shape), other.dtype)
        return {"verdict": "wrong", "message": "compiled gave %s, eager %s" % form}
    if one.numel() == 0 or torch.equal(one.detach().cpu(), other.detach().cpu()):
        return {"verdict": "equal"}
    atol, rtol = TOLERANCES.get(str(one.dtype).replace("torch.", ""), (0.0, 0.0))
    wide = torch.complex128 if one.dtype.is_complex else torch.float64
    a, b = one.detach().cpu().to(wide), other.detach().cpu().to(wide)
    difference = (a - b).abs()
    finite = torch.isfinite(difference)
    close = bool(torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True).all())
    largest = float(difference[finite].max()) if bool(finite.any()) else 0.0
    relative = float((difference[finite] / b.abs()[finite].clamp_min(1e-300)).max()) if bool(finite.any()) else 0.0
    message = None if close else "off by %.3g where %.3g + %.3g x |eager| is allowed" % (largest, atol, rtol)
    return {"verdict": "close" if close else "wrong", "max_abs": largest, "max_rel": relative, "atol": atol, "rtol": rtol,
            "message": message}  # fmt: skip


# ----------------------------------------------------------------- isolation
#
#   parent      no torch; schedules, writes the journal
#    └ zygote   imports torch once and touches no driver; forks a guard for each accelerator task
#       ├ zygote, warm   forked from it; settled ISA, compiled once; forks a guard for each CPU cell
#       └ guard          one a task: adopts every descendant, keeps limits, kills all, writes report.json
#          └ task        the cell: own session, limits, caches and log
#
# Everything talks by one socket a zygote (a JSON line a task, a JSON line when it ended) and by the
# files in a task's directory.  macOS spawns: its zygote imports nothing, its tasks start afresh.

OUTPUT_LIMIT = 8 * 2**20  # bytes that a cell may print
TAIL = 4000  # bytes of them that its record keeps
# Variables that would change what is measured; they are recorded, then cleared.
_CLEARED = ("TORCH", "TRITON_", "PYTORCH_ENABLE_MPS_FALLBACK", "ENABLE_AOT_AUTOGRAD")
_KEPT = ("TORCHINDUCTOR_CPP_WRAPPER_BUILD_SEPARATE", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH", "TORCH_CUDA_ARCH_LIST")
_FORCED = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in-process: no worker pool that outlives or hangs a cell
    "TORCH_WARM_POOL": "0",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "ENABLE_AOT_AUTOGRAD_CACHE": "0",
    "PYTHONUTF8": "1",
}


# Dynamo asks CUDA for its random state whenever it is there: what serves CPU cells must not see it,
# or it initialises the driver, starts its threads and takes the device from the cells that want it.
_NO_ACCELERATOR = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def _prctl(option, value):
    """Linux only; elsewhere the callers' polling does the same later."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(parent):
    """Be killed when the process `parent` dies (PR_SET_PDEATHSIG), or end here if it has died since the fork."""
    _prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans():
    """Become the parent of every descendant whose own parent dies (PR_SET_CHILD_SUBREAPER)."""
    _prctl(36, 1)


def processes():
    """pid -> parent's pid, of all that this user can see."""
    if not os.path.isdir("/proc/self"):
        with subprocess.Popen(("ps", "-axo", "pid=,ppid="), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as ps:
            rows = [tuple(map(int, line.split())) for line in ps.communicate(timeout=10)[0].splitlines()]
        return {pid: parent for pid, parent in rows if pid != ps.pid}  # ps is a descendant that has ended by now
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                table[int(name)] = int(_read("/proc/%s/stat" % name).rpartition(")")[2].split()[1])
    return table


def descendants(root):
    """Pids below `root`, whatever their group or session."""
    children = {}
    for pid, parent in processes().items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found.extend(below)
        queue.extend(below)
    return found


def kill_descendants(root, groups=(), patience=5.0):
    """Kill everything below this process's `root`, again until nothing is left; returns what would not die."""
    end = time.monotonic() + patience
    while True:
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        left = descendants(root)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        while root == os.getpid():
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.01)


def directory_bytes(folder):
    """Bytes that the files below a directory occupy."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


def open_plain(path):
    """Open a file that a cell may have put in our way: no link is followed, no pipe is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("%s is not a plain file" % path)
    return open(descriptor, "rb")


def tail(path, limit=TAIL):
    """The last bytes of a file as text; empty if it is not there."""
    try:
        with open_plain(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def size_of(path):
    """Bytes of a file; 0 where it is gone."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def guard(task, forked):
    """Start a task, watch its deadline and limits, leave nothing of it, write report.json.  Never returns."""
    os.setsid()
    die_with_parent(task["zygote"])
    adopt_orphans()
    task["guard"] = os.getpid()
    folder = Path(task["dir"])
    kills, started = oom_kills(), time.monotonic()
    pid = _start(task, forked)
    status, ended_by = _watch(task, pid, started)
    survivors = kill_descendants(os.getpid(), groups=(pid,))
    whole = resource.getrusage(resource.RUSAGE_CHILDREN)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    write_json(folder / "report.json", {
        "code": None if number else os.WEXITSTATUS(status), "signal": signal.Signals(number).name if number else None,
        "ended_by": ended_by, "survivors": survivors, "printed": size_of(folder / "log"),
        "oom_kills": (oom_kills() or 0) - (kills or 0),
        "cpu_s": round(whole.ru_utime + whole.ru_stime, 3),
        "memory_bytes": whole.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    })  # fmt: skip
    os._exit(0)


def _watch(task, pid, started):
    """(wait status, why it was killed or None).  The status is that of SIGKILL where even that does not end it:
    a driver may hold a process for ever, and the cell's place is wanted.
    """
    folder, pause, looked, ended_by, killed = Path(task["dir"]), 0.005, 0.0, None, None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, ended_by
        waited = time.monotonic() - started
        if waited > task["deadline"]:
            ended_by = "deadline"
        elif waited - looked > 0.25:
            looked = waited
            if size_of(folder / "log") > OUTPUT_LIMIT:
                ended_by = "output_size"
            elif directory_bytes(folder) > task["bytes"]:
                ended_by = "directory_size"
        if ended_by:
            # Where orphans are not adopted (macOS), whose they are can be seen only now.
            for below in (*descendants(pid), pid):
                with contextlib.suppress(OSError):
                    os.kill(below, signal.SIGKILL)
            killed = killed or waited
            if waited - killed > 10:
                return int(signal.SIGKILL), ended_by
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _start(task, forked):
    """pid of the task's process."""
    if not forked:
        write_json(Path(task["dir"], "task.json"), task)
        return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--task", task["dir"]]).pid
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        become_task(task)
        run_task(task)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def become_task(task):
    """Own session, log, limits, caches; the kernel is to kill this one first."""
    folder = Path(task["dir"])
    os.setsid()
    die_with_parent(task["guard"])
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("600", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    limit = task["bytes"] if hard == resource.RLIM_INFINITY else min(task["bytes"], hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and the cell would go on
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(folder)
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ[variable] = str(folder / name)
    if task["forked"]:  # a fresh process finds the run's precompiled header by TMPDIR instead
        (folder / "tmp").mkdir()
        os.environ["TMPDIR"] = str(folder / "tmp")
        tempfile.tempdir = None
    entry = task.get("entry", {})
    if entry.get("visible"):
        os.environ[entry["visible"][0]] = entry["visible"][1]
    elif entry.get("backend") == "cpu" or task["kind"] == "warm":
        os.environ.update(_NO_ACCELERATOR)
    import faulthandler

    faulthandler.enable()


def zygote(cold, warm, mode):
    """Import torch, fork the warm one, serve.  `cold` and `warm` are sockets."""
    die_with_parent(os.getppid())  # too late for a parent that is gone; its socket's end says so
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if mode == "spawn":
        warm.close()
        _say(cold, {"event": "imported"})
        return serve(cold, quiet=0)
    began = time.monotonic()
    try:
        import torch  # noqa: F401
    except BaseException as error:
        _say(cold, {"event": "import_failed", "text": describe_error(error)})
        raise
    _say(cold, {"event": "imported", "seconds": time.monotonic() - began})
    quiet = threads()  # numpy's BLAS starts some at import, and parks them itself at a fork
    parent, pid = os.getpid(), os.fork()
    if pid:
        warm.close()
        return serve(cold, quiet, others={pid})
    cold.close()
    die_with_parent(parent)
    adopt_orphans()
    os.environ.update(_NO_ACCELERATOR)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(tempfile.gettempdir(), "warm"))
    try:
        _say(warm, {"event": "ready", **warm_up()})
    except Exception as error:
        _say(warm, {"event": "ready", "vector_isa": None, "text": describe_error(error)})
    return serve(warm, quiet)


def _say(channel, message):
    channel.sendall((json.dumps(message) + "\n").encode())


def serve(channel, quiet, others=()):
    """Run a guard for each task that comes; say when it ended; end when the parent is gone.

    A task is forked while this process has no more threads than `quiet`: a pool that came later
    would leave every fork with a lock that nobody holds.
    """
    guards, others, rest = {}, set(others), b""
    while True:
        if select.select([channel], [], [], 0.01 if guards else 0.5)[0]:
            data = channel.recv(1 << 16)
            if not data:
                kill_descendants(os.getpid())
                os._exit(0)
            *lines, rest = (rest + data).split(b"\n")
            for task in map(json.loads, lines):
                task["forked"], task["zygote"] = threads() <= quiet, os.getpid()
                Path(task["dir"], "log").touch()
                pid = os.fork()
                if not pid:
                    channel.close()
                    guard(task, task["forked"])
                guards[pid] = task["id"]
        _reap(channel, guards, others)


def threads():
    """Threads of this process, those that Python does not know of included."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


def _reap(channel, guards, others):
    """Report guards that ended.  A child that is no guard is the orphan of one that was killed."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not pid:
            break
        if pid in guards:
            _say(channel, {"event": "done", "id": guards.pop(pid), "status": status})
            table = processes()
            for orphan in [
                p for p, parent in table.items() if parent == os.getpid() and p not in guards and p not in others
            ]:
                for below in (*descendants(orphan), orphan):
                    with contextlib.suppress(OSError):
                        os.kill(below, signal.SIGKILL)


# ------------------------------------------------------------------- journal


class Journal:
    """JSON Lines in ASCII, each flushed when it happens; space for the end is reserved beforehand."""

    RESERVE = 1 << 20

    def __init__(self, path):
        self.records, self.statuses, self.artifacts, self.full = [], {}, {}, False
        self.file = open(path, "wb", buffering=0) if path else None  # noqa: SIM115
        self.reserve = Path(str(path) + ".reserve") if path else None
        if self.reserve:
            self.reserve.write_bytes(b"\0" * self.RESERVE)

    def write(self, record, **fields):
        """Append one record, whole or not at all.  On a full disk the reserve is given up, for what must still be said."""
        line = {"record": record, **(fields if record == "artifact" else sayable(fields))}
        self.records.append(line)
        if self.file is None:
            return
        data = (json.dumps(line, ensure_ascii=True, allow_nan=False) + "\n").encode("ascii")
        start = self.file.tell()
        while not (self.full and record == "artifact"):
            try:
                rest = data
                while rest:
                    rest = rest[self.file.write(rest) :]
                return
            except OSError:
                self.file.truncate(start)  # half a record would spoil the next one too
                self.file.seek(start)
                if self.full:
                    raise
                self.full = True
                self.reserve.unlink()

    def artifact(self, sha, text):
        if sha not in self.artifacts:
            self.artifacts[sha] = text
            self.write("artifact", sha256=sha, text=text)

    def cell(self, cell):
        self.statuses[cell["device"], cell["function"], cell["variant"]] = cell["status"]
        self.write("cell", **cell)

    @property
    def counts(self):
        """Cells by status; one that was run again counts once, as it ended last."""
        return Counter(self.statuses.values())

    def close(self):
        if self.reserve:
            with contextlib.suppress(OSError):
                self.reserve.unlink()
        if self.file:
            self.file.close()


def sayable(value):
    """The same structure as a record may hold it: bounded, numbers finite, text without lone surrogates."""
    if isinstance(value, dict):
        return {key: sayable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [sayable(item) for item in value[:2000]]
    if isinstance(value, str):
        return value[:20_000].encode("utf-8", "replace").decode("utf-8")
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value


# --------------------------------------------------------------------- probe

IMPORT_DEADLINE = 300.0  # seconds for importing torch, from a cold network file system too
FACTS_DEADLINE = 120.0  # seconds for a driver to answer
BAD = ("failed", "wrong", "crashed", "timeout", "flaky")
EXHAUSTED = ("out_of_memory", "directory_size", "host_memory")


class Channel:
    """The parent's end of a zygote's socket."""

    def __init__(self, mine):
        self.socket, self.rest, self.open, self.tasks = mine, b"", True, {}

    def fileno(self):
        return self.socket.fileno()

    def send(self, task):
        self.tasks[task["id"]] = task
        with contextlib.suppress(OSError):  # a dead zygote shows itself by the end of its messages
            self.socket.sendall((json.dumps(task) + "\n").encode())

    def messages(self):
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        self.open = bool(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Probe:
    """One run: which tasks when, and what their ends mean."""

    def __init__(self, options, journal, say):
        self.options, self.journal, self.listener = options, journal, say
        self.titles = {
            name: title for name, title in list_functions(options.pack).items() if chosen(name, options.function)
        }
        self.cleared = {
            key: value for key, value in os.environ.items() if key.startswith(_CLEARED) and key not in _KEPT
        }
        self.facts = host_facts(self.cleared)
        self.jobs = options.jobs or max(1, int(granted_cores()))
        self.mode = options.isolation or ("spawn" if sys.platform == "darwin" else "fork")
        self.numbers, self.running, self.queue, self.overlap = iter(range(1 << 30)), {}, [], []
        self.entries, self.devices, self.canaries = None, [], 0
        self.vector_isa, self.environment_written = None, False
        self.ready, self.stop, self.cold, self.warm = False, None, None, None

    def say(self, event, data):
        """Tell whoever watches; a full disk or a closed pipe there is no reason to end."""
        with contextlib.suppress(OSError):
            self.listener(event, data)

    # -- the loop

    def run(self):
        """Everything, from the first record to the last; returns the exit code."""
        self.journal.write("run", schema_version=SCHEMA_VERSION, payload_version=VERSION, payload_sha256=own_sha256(),
                           argv=sys.argv, started=now())  # fmt: skip
        self.work = Path(tempfile.mkdtemp(prefix="inductor-atlas-", dir=self.options.workdir))
        adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: setattr(self, "stop", self.stop or "interrupted"))
        self.say("begin", {})
        process = self._start_zygote()
        began = time.monotonic()
        try:
            while self.stop is None and not self._finished():
                self._turn()
                if self.options.deadline and time.monotonic() - began > self.options.deadline:
                    self.stop = "deadline"
                if self.journal.full:
                    self.stop = "journal_full"
                if time.monotonic() - began > IMPORT_DEADLINE + FACTS_DEADLINE:
                    self._give_up_waiting()
        finally:
            kill_descendants(os.getpid(), groups=(process.pid,))
            process.wait()
            shutil.rmtree(self.work, ignore_errors=True)
        return self._end()

    def _give_up_waiting(self):
        """Importing torch, or the warm-up, hangs: what waits for it says so, the rest goes on."""
        if self.entries is None:
            self._no_torch("TimeoutError: importing torch did not end in %d s" % (IMPORT_DEADLINE + FACTS_DEADLINE))
        if not self.ready:
            self.warm.open = False
            self._on_death(self.warm)

    def _start_zygote(self):
        pairs = [socket.socketpair() for _ in range(2)]
        self.cold, self.warm = (Channel(pair[0]) for pair in pairs)
        environment = {key: value for key, value in os.environ.items() if key not in self.cleared}
        environment.update(_FORCED, TMPDIR=str(self.work), TORCHINDUCTOR_CACHE_DIR=str(self.work / "shared"))
        if not any(name in os.environ for name in ("USER", "LOGNAME")):
            environment.update(USER="uid%d" % os.getuid(), LOGNAME="uid%d" % os.getuid())  # getpass before torch 2.13
        ends = [pair[1].fileno() for pair in pairs]
        with open(self.work / "zygote.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--zygote", *map(str, ends), self.mode],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=ends, start_new_session=True,
            )  # fmt: skip
        for pair in pairs:
            pair[1].close()
        if self.mode == "spawn":
            self.warm.socket.close()
            self.warm = self.cold
        return process

    def _finished(self):
        return (
            self.entries is not None
            and not self.canaries
            and self.environment_written
            and not (self.queue or self.running)
        )

    def _turn(self):
        """Wait for what happens next and act on it."""
        channels = {id(c): c for c in (self.cold, self.warm) if c.open}.values()
        if not channels and self.entries is not None and not self.running:
            self.stop = "isolation"
            return
        for channel in select.select(list(channels), [], [], 0.25)[0]:
            for message in channel.messages():
                getattr(self, "_on_" + message["event"])(channel, message)
            if not channel.open:
                self._on_death(channel)
        self._start_cells()

    # -- what zygotes say

    def _on_imported(self, channel, message):
        self._took(**({"import": message["seconds"]} if "seconds" in message else {}))
        self._send(self.cold, "discover", {}, FACTS_DEADLINE)
        if self.mode == "spawn":
            self._send(self.cold, "warm", {}, IMPORT_DEADLINE)

    def _on_import_failed(self, channel, message):
        self._no_torch(message["text"])

    def _on_ready(self, channel, message):
        self.ready, self.vector_isa = True, message["vector_isa"]
        self._took(**message.get("seconds", {}))
        if message.get("text"):
            self.facts.unknown["vector_isa"] = first_line(message["text"])
        self._write_environment()

    def _on_done(self, channel, message):
        task = channel.tasks.pop(message["id"])
        report, result = (read_json(Path(task["dir"], name)) for name in ("report.json", "result.json"))
        getattr(self, "_after_" + task["kind"])(task, report or {}, result or {})
        shutil.rmtree(task["dir"], ignore_errors=True)

    def _on_death(self, channel):
        """A zygote is gone: whatever it had to do is lost, and says so."""
        if self.entries is None:
            self._no_torch(tail(self.work / "zygote.log") or "the process that imports torch died")
        for task in list(channel.tasks.values()):
            channel.tasks.pop(task["id"])
            getattr(self, "_after_" + task["kind"])(task, {}, {})
        if channel is self.warm:
            self.ready = True
            self.facts.unknown.setdefault("vector_isa", "the process that looks for it died")
            self._write_environment()

    def _send(self, channel, kind, fields, deadline):
        number = next(self.numbers)
        folder = self.work / ("%s-%d" % (kind, number))
        folder.mkdir()
        task = {"id": number, "kind": kind, "dir": str(folder), "deadline": deadline, "workers": self.jobs,
                "bytes": self.options.cell_megabytes << 20, **fields}  # fmt: skip
        channel.send(task)
        return task

    # -- devices

    def _no_torch(self, text):
        """torch cannot be imported: one blocked CPU, and every cell says why."""
        _, reason, hint = fault_of(text, "blocked", "torch_import")
        self.facts.values.setdefault("backends", [])
        for name in ("torch_version", "vector_isa"):
            self.facts.unknown[name] = first_line(text.strip().splitlines()[-1] if text.strip() else text)
        self.ready, self.entries = True, []
        last = first_line(text.strip().splitlines()[-1]) if text.strip() else "the process died"
        message = "torch is not installed in %s" % sys.executable if reason == "no_torch" else last
        blocked = (reason, message, hint)
        self._device({"device": "cpu", "backend": "cpu", "index": None, "blocked": blocked})
        self._write_environment()

    def _after_discover(self, task, report, result):
        if "devices" not in result:
            error = result.get("error", {})
            return self._no_torch(
                error.get("text") or "%s\n%s" % (tail(Path(task["dir"], "log")), how_it_died(report)[2])
            )
        self.facts.values.update(result["facts"])
        self.facts.unknown.update(result["unknown"])
        self.entries = [entry for entry in result["devices"] if matches_device(entry, self.options.device)]
        for entry in self.entries:
            if entry["blocked"]:
                self._device(entry)
            else:
                self.canaries += 1
                self._send(self.cold, "canary", {"entry": entry}, FACTS_DEADLINE)
        return self._write_environment()

    def _after_canary(self, task, report, result):
        self.canaries -= 1
        entry = task["entry"]
        if "facts" in result:
            self._device(entry, **result["facts"], unknown=result["unknown"])
        else:
            error = result.get("error") or dict(zip(("status", "reason", "message", "hint"), how_it_died(report)))
            reason = error["reason"] if error["reason"] not in ("error", "signal", "exited", "hang") else "canary"
            reason = "mps_virtualized" if entry["backend"] == "mps" and reason == "canary" else reason
            message = "cannot allocate, add and read back: %s" % error["message"]
            self._device(dict(entry, blocked=(reason, message, error["hint"])))
        self._write_environment()

    def _after_warm(self, task, report, result):
        error = result.get("error") or {"text": how_it_died(report)[2]}
        self._on_ready(None, result if "vector_isa" in result else {"vector_isa": None, "text": error["text"]})

    def _took(self, **seconds):
        """Start-up that the cells share, in wall seconds."""
        startup = self.facts.values.setdefault("startup", {})
        startup.update((name, round(value, 3)) for name, value in seconds.items())

    def _device(self, entry, unknown=None, **facts):
        """Write a device's record and queue its cells, or write them where it is blocked."""
        record = {
            "device": entry["device"],
            "backend": entry["backend"],
            "index": entry["index"],
            "status": "ok",
            **facts,
        }
        record.setdefault("name", entry.get("name"))
        if entry["blocked"]:
            reason, message, hint = entry["blocked"]
            record.update(status="blocked", reason=reason, message=message, hint=hint)
        record["unknown"] = unknown or {}
        self.devices.append(record)
        self.journal.write("device", **record)
        self.say("device", record)
        for task in self._tasks(entry):
            if entry["blocked"]:
                self._cell(self._base(task), status="blocked", reason=reason, message=message, hint=hint)
            else:
                self.queue.append(task)

    def _tasks(self, entry):
        """One for each function."""
        pack = self.options.pack and os.path.abspath(self.options.pack)
        return [{"entry": entry, "function": name, "variant": DEFAULT_VARIANT, "pack": pack, "route": self.options.route,
                 "attempts": 1, "alone": False} for name in self.titles]  # fmt: skip

    def _write_environment(self):
        if self.environment_written or self.canaries or not self.ready or self.entries is None:
            return
        self.environment_written = True
        self.facts.values["vector_isa"] = self.vector_isa
        self.facts.values["fingerprint"], self.facts.values["fingerprint_covers"] = fingerprint(
            self.facts.values, self.devices
        )
        self.journal.write("environment", **self.facts.values, unknown=self.facts.unknown)
        self.say("environment", dict(self.facts.values, devices=self.devices))

    # -- cells

    def _start_cells(self):
        for task in list(self.queue):
            cpu = task["entry"]["backend"] == "cpu"
            channel = self.warm if cpu else self.cold
            if any(other["alone"] for other in self.running.values()) or len(self.running) >= self.jobs:
                return
            if (task["alone"] and self.running) or (cpu and not self.ready):
                continue
            self.queue.remove(task)
            if not channel.open:
                self._cell(self._base(task), status="failed", reason="isolation", message=REASONS["isolation"])
                continue
            task["started"], task["began"] = now(), time.monotonic()
            sent = self._send(channel, "cell", task, self.options.timeout)
            self.running[sent["id"]] = task
            self.say("start", task)

    def _base(self, task):
        repeat = [os.path.basename(sys.executable), "probe_payload.py", "--device", task["entry"]["device"],
                  "--function", task["function"]]  # fmt: skip
        return {
            "device": task["entry"]["device"], "function": task["function"], "variant": task["variant"],
            "title": self.titles[task["function"]], "started": task.get("started", now()), "ended": now(),
            "workers": 1 if task["alone"] else self.jobs, "attempts": task["attempts"], "repeat": repeat,
            "rerun": task.get("rerun"),
        }  # fmt: skip

    def _after_cell(self, task, report, result):
        queued = self.running.pop(task["id"])
        folder = Path(task["dir"])
        cell = self._base(queued)
        cell["phase"] = tail(folder / "phase") or "start"
        cell["exit"] = {key: report.get(key) for key in ("code", "signal", "cpu_s", "memory_bytes")}
        found, artifacts = result.get("cell"), result.get("artifacts", {})
        if found is None and not result and size_of(folder / "result.json"):
            result = {
                "error": {"status": "failed", "reason": "result_lost", "message": REASONS["result_lost"], "hint": None}
            }
        if found is None:
            codes = [tail(path, CODE_LIMIT) for path in sorted(folder.glob("code-*.txt"))[:200]]
            found, artifacts = describe_codes(codes)
            found["route"] = "output_code_log" if codes else None
            error = result.get("error") or dict(
                zip(("status", "reason", "message", "hint"), how_it_died(report, tail(folder / "log")))
            )
            found.update((key, error[key]) for key in ("status", "reason", "message", "hint"))
            if found["status"] in ("crashed", "timeout"):
                found["message"] += ", in phase %s" % cell["phase"]
        if found["status"] in (*BAD, "blocked", "unsupported"):
            cell["stderr_tail"] = tail(folder / "log")
        for sha, text in artifacts.items():
            self.journal.artifact(sha, text)
        self._cell({**cell, **{key: value for key, value in found.items() if value is not None}})
        self._rerun_neighbours(queued, found)

    def _rerun_neighbours(self, task, cell):
        """A cell that failed beside one that exhausted the machine gets one more try, alone."""
        self.overlap.append((task, cell, task["began"], time.monotonic()))
        for culprit, its_cell, its_began, its_ended in self.overlap:
            if its_cell.get("reason") not in EXHAUSTED or its_cell["status"] not in BAD:
                continue
            for other, other_cell, other_began, other_ended in self.overlap:
                beside = other is not culprit and other_began < its_ended and its_began < other_ended
                if beside and other_cell["status"] in ("failed", "crashed") and other["attempts"] == 1:
                    other["attempts"] = 2
                    self.queue.append(dict(other, alone=True, rerun="neighbour"))

    def _cell(self, cell, **more):
        cell.update(more)
        self.journal.cell(cell)
        self.say("cell", cell)

    def _end(self):
        """Cells that had no turn, the last record, the exit code."""
        if self.journal.full:
            self.stop = self.stop or "journal_full"
        if self.entries is None:  # torch never answered: the CPU is there all the same
            cpu = {"device": "cpu", "backend": "cpu", "index": None, "visible": None, "blocked": None}
            self.queue = self._tasks(cpu) if matches_device(cpu, self.options.device) else []
        for task in [*self.running.values(), *self.queue]:
            if self.stop == "deadline" and task in self.running.values():
                self._cell(
                    self._base(task), status="timeout", reason="deadline", message="the whole run's deadline passed"
                )
            else:
                self._cell(self._base(task), status="not_run", reason=self.stop, message=REASONS[self.stop])
        if not self.environment_written:
            self.canaries, self.ready, self.entries = 0, True, self.entries or []
            self._write_environment()
        counts = dict(self.journal.counts)
        reason = self.stop or (None if self.devices else "no_device")
        self.journal.write("end", ended=now(), cells=sum(counts.values()), counts=counts, reason=reason,
                           message=REASONS.get(reason))  # fmt: skip
        self.say("end", counts)
        if any(counts.get(status) for status in BAD) or self.stop:
            return 1
        if not self.devices:
            return 5
        return 4 if counts.get("blocked") else 0


def how_it_died(report, log=""):
    """(status, reason, message, hint) of a process that left no result."""
    ended_by, name, code = report.get("ended_by"), report.get("signal"), report.get("code")
    if not report:
        return "failed", "isolation", REASONS["isolation"], None
    if ended_by == "deadline":
        return "timeout", "hang", "killed at its deadline", None
    if ended_by:
        return "crashed", ended_by, REASONS[ended_by], None
    if name == "SIGXFSZ":
        reason = "output_size" if report["printed"] > OUTPUT_LIMIT else "file_size"
        return "crashed", reason, REASONS[reason], None
    if name == "SIGKILL" and report.get("oom_kills"):
        return "crashed", "out_of_memory", REASONS["out_of_memory"], None
    if name:
        _, reason, hint = fault_of(log, "crashed", "signal")
        return (
            "crashed",
            reason if reason == "omp_duplicate" else "signal",
            "killed by %s" % name,
            hint if reason == "omp_duplicate" else None,
        )
    return "crashed", "exited", "ended itself with code %s and left no result" % code, None


def read_json(path, limit=64 << 20):
    """The JSON object in a file, or None where it is missing, too long or broken."""
    try:
        with open_plain(path) as file:
            data = file.read(limit + 1)
        value = json.loads(data.decode("utf-8")) if len(data) <= limit else None
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def chosen(name, wanted):
    return not wanted or name in wanted


def is_device_word(name):
    """True for a word that --device takes."""
    return re.fullmatch(r"(cpu|mps)|(cuda|rocm|xpu)(:\d+)?", name) is not None


def matches_device(entry, wanted):
    """`cuda` selects every CUDA device, `cuda:1` one; `rocm` is a backend's name for torch's cuda."""
    names = (entry["device"], entry["device"].split(":")[0], entry["backend"])
    return not wanted or any(name in names for name in wanted)


def own_sha256():
    return hashlib.sha256(Path(os.path.abspath(__file__)).read_bytes()).hexdigest()


# ---------------------------------------------------------------- for people

WIDE = "=" * 70
THIN = "-" * 70


def kind_name(cell):
    """The kind as the original probe names it; mixed ones name their parts."""
    if not cell.get("kinds"):
        return "none (%s)" % cell["status"]
    return " + ".join(KINDS.get(kind, kind) for kind in cell["kinds"])


class Printer:
    """The original probe's report, each block in its order, as soon as it and all before it are known."""

    def __init__(self, journal, functions, stream=None):
        self.journal, self.functions, self.stream = journal, list(functions), stream or sys.stdout
        self.environment, self.cells, self.printed = None, {}, set()

    def __call__(self, event, data):
        if event in ("begin", "device", "start") and sys.stderr.isatty():
            doing = "%s %s" % (data["entry"]["device"], data["function"]) if event == "start" else "looking for devices"
            print("\r%s ...\033[K" % doing, end="", file=sys.stderr, flush=True)
        elif sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        if event == "environment":
            self.environment = data
            self._environment()
        if event == "cell":
            key = data["device"], data["function"]
            self.cells[key] = data
            if key in self.printed:  # it was run again
                self._block(data)
        if event in ("cell", "environment") and self.environment:
            self._blocks()
        if event == "end" and self.environment:
            self._summary()
            self._findings()
            self._reading()

    def line(self, text=""):
        print(
            text.encode(self.stream.encoding or "utf-8", "replace").decode(self.stream.encoding or "utf-8"),
            file=self.stream,
            flush=True,
        )

    def title(self, text, rule=WIDE):
        for line in (rule, text, rule):
            self.line(line)

    def name_of(self, device):
        record = next((r for r in self.environment["devices"] if r["device"] == device), {})
        return record.get("name") or record.get("message") or self.environment.get("arch") or ""

    def _environment(self):
        facts = self.environment
        available = {fact["name"]: fact["available"] for fact in facts.get("backends", [])}
        self.title("ENVIRONMENT")
        self.line("torch.__version__ ............. %s" % (facts.get("torch_version") or "not importable"))
        self.line("default torch.compile backend . %r" % facts.get("torch_default_backend"))
        for name in ("cuda", "mps", "xpu"):
            self.line(
                "%s available %s %s"
                % (
                    name,
                    "." * (20 - len(name)),
                    available.get(name, available.get("rocm") if name == "cuda" else None) or False,
                )
            )
        self.line("devices probed:")
        for record in facts["devices"]:
            state = "" if record["status"] == "ok" else "   %s: %s" % (record["status"], record.get("message"))
            self.line("  - %-6s %s%s" % (record["device"], record.get("name") or "", state))
            if record.get("hint"):
                self.line("    to mend it: %s" % record["hint"])

    def _blocks(self):
        for record in self.environment["devices"]:
            for function in self.functions:
                key = record["device"], function
                if key not in self.cells:
                    return
                if key not in self.printed:
                    self.printed.add(key)
                    self._block(self.cells[key])

    def _block(self, cell):
        self.line()
        self.title("[%s] %s" % (cell["device"], cell["title"]), THIN)
        self.line("codegen kind : %s" % kind_name(cell))
        self.line("captured via : %s" % (cell.get("route") or "nothing was captured"))
        if cell["status"] not in RAN_STATUSES or cell.get("reason"):
            self.line("status       : %s%s" % (cell["status"], "/%s" % cell["reason"] if cell.get("reason") else ""))
        for name, label in (("message", "because      : %s"), ("hint", "to mend it   : %s")):
            if cell.get(name):
                self.line(label % cell[name])
        for graph in cell.get("graphs", []):
            text = self.journal.artifacts.get(graph["artifact"], "")
            first, shown = excerpt(text, classify(text))
            which = "" if len(cell["graphs"]) == 1 else ", graph %d of %d" % (graph["index"] + 1, len(cell["graphs"]))
            self.line("generated kernel (excerpt%s):" % which)
            self.line("    (from line %d)" % first)
            for line in shown:
                self.line(("    " + line).rstrip())
            if first - 1 + len(shown) < text.count("\n"):
                self.line("    ... (more lines)")

    def _summary(self):
        self.line()
        self.title("SUMMARY: device x function -> codegen kind")
        for cell in self._in_order():
            how = cell.get("route") or cell["status"]
            self.line("%-6s | %-26s -> %s (%s)" % (cell["device"], cell["title"], kind_name(cell), how))

    def _in_order(self):
        return [
            self.cells[r["device"], f]
            for r in self.environment["devices"]
            for f in self.functions
            if (r["device"], f) in self.cells
        ]

    def _findings(self):
        self.line()
        self.title("FINDINGS (per device, from the captured output above)")
        for record in self.environment["devices"]:
            cells = [cell for cell in self._in_order() if cell["device"] == record["device"]]
            self.line("[%s] %s" % (record["device"], self.name_of(record["device"])))
            for label, value in device_findings(cells):
                self.line("  %-27s : %s" % (label, value))

    def _reading(self):
        self.line()
        self.title("READING")
        for sentence in reading(self.environment["devices"], self._in_order()):
            self.line(sentence)


def device_findings(cells):
    """(label, value) lines of one device, in the original's words; neutral."""
    generated = sorted(
        {KINDS.get(kind, kind) for cell in cells for kind in cell.get("kinds", {}) if kind not in CALLED_KINDS}
    )
    yield "Inductor-generated kernels", ", ".join(generated) or "none"
    yield "Triton emitted here", "yes" if any("triton" in cell.get("kinds", {}) for cell in cells) else "no"
    for kind, label in (("extern", "handed to an extern library"), ("aten_fallback", "fell back to ATen")):
        named = [cell["title"] for cell in cells if kind in cell.get("kinds", {})]
        if named or kind == "extern":
            yield label, ", ".join(named) or "nothing"
    for status in sorted({cell["status"] for cell in cells} - set(RAN_STATUSES)):
        yield status, ", ".join(cell["title"] for cell in cells if cell["status"] == status)


def reading(devices, cells):
    """Sentences about what was seen in this run, and only that."""
    wrote, called = {}, {}
    for cell in cells:
        for kind in cell.get("kinds", {}):
            (called if kind in CALLED_KINDS else wrote).setdefault(cell["device"], {}).setdefault(kind, []).append(
                cell["title"]
            )
    for device in wrote:
        kinds = " and ".join(KINDS.get(kind, kind) for kind in wrote[device])
        functions = ", ".join(dict.fromkeys(title for titles in wrote[device].values() for title in titles))
        yield "On %s Inductor generated %s for %s." % (device, kinds, functions)
    for device in called:
        for kind, titles in called[device].items():
            what = (
                "handed to a library"
                if kind == "extern"
                else "left to eager ATen"
                if kind == "aten_fallback"
                else "given to a custom operator"
            )
            yield "On %s %s was %s instead of being generated." % (device, ", ".join(titles), what)
    if len(wrote) > 1:
        same = len({tuple(sorted(kinds)) for kinds in wrote.values()}) == 1
        yield "The devices here %s." % (
            "share one generator" if same else "get different generators from the same front end"
        )
    for cell in cells:
        if cell["status"] not in RAN_STATUSES:
            yield "%s on %s is %s: %s." % (
                cell["title"],
                cell["device"],
                cell["status"],
                (cell.get("message") or cell.get("reason") or "").rstrip("."),
            )
    if not devices:
        yield "No device was probed."


def print_progress(event, data):
    """One plain line a change: what a log, or a program that follows this one, wants."""
    if event == "device":
        print(
            "device %s %s %s" % (data["device"], data["status"], data.get("reason") or data.get("name") or ""),
            flush=True,
        )
    elif event == "start":
        print("start %s %s~%s" % (data["entry"]["device"], data["function"], data["variant"]), flush=True)
    elif event == "cell":
        print(
            "cell %s %s~%s %s %s"
            % (data["device"], data["function"], data["variant"], data["status"], data.get("kind") or "-"),
            flush=True,
        )
    elif event == "end":
        print("end %s" % " ".join("%s=%d" % item for item in sorted(data.items())), flush=True)


# -------------------------------------------------------------- command line


def parse(arguments):
    """Options; a bad one ends the process with what is allowed."""
    parser = argparse.ArgumentParser(
        prog="probe_payload.py",
        description="What code does torch.compile generate on the devices of this machine?",
        epilog="exit codes: 0 every cell answered, 1 some failed, were wrong, crashed or timed out, 2 bad options, "
        "4 something is blocked, 5 nothing selected",
    )
    parser.add_argument("--out", metavar="FILE", help="write JSON Lines here and print progress instead of the report")
    parser.add_argument("--list", action="store_true", help="print the names of the functions (needs no torch)")
    parser.add_argument(
        "--describe", action="store_true", help="print functions, kinds, statuses and reasons as JSON (needs no torch)"
    )
    parser.add_argument(
        "--device", action="append", default=[], metavar="D", help="cpu, cuda, cuda:1, rocm, xpu, mps; may be repeated"
    )
    parser.add_argument(
        "--function", action="append", default=[], metavar="F", help="a name that --list prints; may be repeated"
    )
    parser.add_argument(
        "--functions",
        dest="pack",
        metavar="FILE",
        help="a Python file with functions of your own, instead of the built-in ones",
    )
    parser.add_argument(
        "--timeout", type=_positive, default=300.0, metavar="S", help="seconds for each cell (default 300)"
    )
    parser.add_argument("--deadline", type=_positive, metavar="S", help="seconds for the whole run")
    parser.add_argument("--route", choices=ROUTES, help="force one way of capturing code")
    parser.add_argument("--jobs", type=int, metavar="N", help="cells side by side (default: the cores granted)")
    parser.add_argument(
        "--isolation", choices=("fork", "spawn"), help="how cells are started (default: fork; macOS: spawn)"
    )
    parser.add_argument(
        "--cell-megabytes", type=int, default=2048, metavar="MB", help="disk that a cell may fill (default 2048)"
    )
    parser.add_argument("--workdir", metavar="DIR", help="where temporary files go (default: the system's)")
    parser.add_argument("--version", action="version", version=VERSION)
    options = parser.parse_args(arguments)
    try:
        names = list_functions(options.pack)
    except (OSError, SyntaxError, ValueError) as error:
        parser.error("--functions %s: %s" % (options.pack, error))
    for name in options.function:
        if name not in names:
            parser.error("--function %s: there is no such function; allowed: %s" % (name, ", ".join(names)))
    for name in options.device:
        if not is_device_word(name):
            parser.error("--device %s: allowed: cpu, mps, cuda, cuda:N, rocm, xpu, xpu:N" % name)
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs %d: must be 1 or more" % options.jobs)
    if options.cell_megabytes < 1:
        parser.error("--cell-megabytes %d: must be 1 or more" % options.cell_megabytes)
    if options.workdir and not os.access(options.workdir, os.W_OK | os.X_OK):
        parser.error("--workdir %s: not a directory that this user can write" % options.workdir)
    return options


def _positive(text):
    value = float(text)
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError("%s: seconds must be more than 0 and less than 10000000" % text)
    return value


def describe():
    """What this payload knows, for a program that has to plan with it."""
    functions = [{"name": name, "title": title} for name, title in list_functions(None).items()]
    return {
        "version": VERSION, "schema_version": SCHEMA_VERSION, "functions": functions, "kinds": KINDS,
        "called_kinds": CALLED_KINDS, "statuses": STATUSES, "reasons": REASONS, "routes": ROUTES, "phases": PHASES,
    }  # fmt: skip


def main(arguments):
    """Run from the command line; returns the exit code."""
    if arguments[:1] == ["--zygote"]:
        cold, warm = (socket.socket(fileno=int(number)) for number in arguments[1:3])
        return zygote(cold, warm, arguments[3])
    if arguments[:1] == ["--task"]:
        task = read_json(Path(arguments[1], "task.json"))
        become_task(task)
        return run_task(task)
    options = parse(arguments)
    if options.list:
        for name, title in list_functions(options.pack).items():
            print("%-12s %s" % (name, title))
        return 0
    if options.describe:
        print(json.dumps(describe(), indent=2))
        return 0
    try:
        journal = Journal(options.out)
    except OSError as error:
        print("probe_payload.py: error: --out %s: %s" % (options.out, error), file=sys.stderr)
        return 2
    names = [name for name in list_functions(options.pack) if chosen(name, options.function)]
    probe = Probe(options, journal, print_progress if options.out else Printer(journal, names))
    try:
        return probe.run()
    finally:
        journal.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
