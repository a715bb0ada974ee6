"""A pack of functions that do what a lab's functions do at their worst; the payload runs it with --functions.

What is `apart` must not be looked at by Dynamo: it has to happen while the cell runs.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

apart = torch._dynamo.disable


def one(device, dtype):
    return [torch.arange(16, dtype=dtype, device=device).reshape(4, 4) / 7]


# ---------------------------------------------------------------- how a process ends


@apart
def segfault(x):
    ctypes.string_at(0)


@apart
def abort(x):
    os.abort()


@apart
def hang(x):
    while True:
        time.sleep(1)


@apart
def leave_with_0(x):
    os._exit(0)


@apart
def leave_with_3(x):
    print("last words", flush=True)
    os._exit(3)


@apart
def system_exit(x):
    sys.exit("enough")


@apart
def chatter(x):
    while True:
        sys.stdout.write("x" * 100_000)


@apart
def big_file(x):
    with Path("big").open("wb") as file:
        while True:
            file.write(b"\1" * (1 << 20))
            file.flush()


@apart
def many_files(x):
    for number in range(1 << 20):
        Path(f"file{number}").write_bytes(b"\1" * (1 << 20))
        time.sleep(0.005)


@apart
def escape(x):
    """Children in sessions of their own, one of them twice removed; then no end."""
    subprocess.Popen(["sleep", "777"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(777)
        os._exit(0)
    while True:
        time.sleep(1)


@apart
def leave_children(x):
    """Ends well, and leaves a child that would go on."""
    subprocess.Popen(["sleep", "778"], start_new_session=True)
    return x + 1


@apart
def kill_guard(x):
    os.kill(os.getppid(), 9)
    time.sleep(60)


@apart
def memory(x):
    """More than the limit that this process sets itself."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    return torch.ones(4 << 30, dtype=torch.float32)


def bad_inputs(device, dtype):
    raise FileNotFoundError("weights.bin")


# ---------------------------------------------------------------- how a compiled call ends


def identity(x):
    return x


def only_break(x):
    print("hello")
    return x


def view(x):
    return x.view(2, 8)


def sort(x):
    return torch.sort(x)[0]


def mixed(x):
    return (x @ x).relu()


def wrong(x):
    return x @ x if torch.compiler.is_compiling() else x @ x + 1


def raises(x):
    raise ValueError("no such luck")


def bad_shapes(x):
    return x @ torch.ones(3, 3)


def suppressed(x):
    return x + 1


def broken_compiler(device, dtype):
    """What a lab's own start-up file may do."""
    import torch._inductor.config as config

    config.cpp.cxx = ("no-such-compiler",)
    torch._dynamo.config.suppress_errors = True
    return one(device, dtype)


@torch.compile(backend="inductor")
def _helper(x, word):
    return torch.sort(x)[0] if word else x


def recompile(x):
    torch._dynamo.graph_break()
    for word in "abcdefghijkl":
        _helper(x, word)
    return x


def in_place(x):
    x.add_(1)
    return x * 2


def breaks(x):
    x = x @ x
    print("a")
    x = torch.sort(x)[0]
    print("b")
    return x @ x


def same_twice(x):
    x = x @ x
    print("a")
    return x @ x


def complex_numbers(x):
    y = torch.complex(x, x)
    return (y * y.conj()).real


def dropout(x):
    return torch.nn.functional.dropout(x, 0.5)


def half_inverse(x):
    return torch.linalg.inv(x.half())


def train(x):
    y = (x.detach().clone().requires_grad_()).sin()
    y.sum().backward()
    return y.detach()


def compile_disabled(x):
    return x


FUNCTIONS = {
    "hang": ("waits for ever", hang, one),
    "escape": ("children that leave the group", escape, one),
    "segfault": ("reads address 0", segfault, one),
    "abort": ("aborts", abort, one),
    "leave_with_0": ("os._exit(0)", leave_with_0, one),
    "leave_with_3": ("os._exit(3)", leave_with_3, one),
    "system_exit": ("sys.exit", system_exit, one),
    "chatter": ("prints without end", chatter, one),
    "big_file": ("one file without end", big_file, one),
    "many_files": ("files without end", many_files, one),
    "leave_children": ("leaves a child", leave_children, one),
    "kill_guard": ("kills what watches it", kill_guard, one),
    "memory": ("asks for too much memory", memory, one),
    "bad_inputs": ("cannot make its inputs", identity, bad_inputs),
    "identity": ("identity", identity, one),
    "only_break": ("nothing but a break", only_break, one),
    "view": ("view", view, one),
    "sort": ("sort", sort, one),
    "mixed": ("matmul and relu", mixed, one),
    "wrong": ("differs when compiled", wrong, one),
    "raises": ("raises", raises, one),
    "bad_shapes": ("shapes that do not fit", bad_shapes, one),
    "suppressed": ("suppresses errors", suppressed, broken_compiler),
    "recompile": ("recompiles too often", recompile, one),
    "in_place": ("changes its input", in_place, one),
    "breaks": ("two breaks", breaks, one),
    "same_twice": ("the same graph twice", same_twice, one),
    "complex_numbers": ("complex", complex_numbers, one),
    "dropout": ("random", dropout, one),
    "half_inverse": ("a dtype that LAPACK lacks", half_inverse, one),
    "train": ("forward and backward", train, one),
    "compile_disabled": ("Dynamo is told to stay away", apart(compile_disabled), one),
}
