"""A pack of functions that do what a lab's functions do at their worst; the payload runs it with --functions.

Dynamo stops in front of what it cannot follow, so the worst happens while the cell runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch


def one(device, dtype):
    return [torch.arange(16, dtype=dtype, device=device).reshape(4, 4) / 7]


# ---------------------------------------------------------------- how a process ends


def segfault(x):
    ctypes.string_at(0)


def abort(x):
    os.abort()


def hang(x):
    while True:
        time.sleep(1)


def leave_with_0(x):
    os._exit(0)


def leave_with_3(x):
    print("last words", flush=True)
    os._exit(3)


def system_exit(x):
    sys.exit("enough")


def chatter(x):
    while True:
        sys.stdout.write("x" * 100_000)


def big_file(x):
    with Path("big").open("wb") as file:
        while True:
            file.write(b"\1" * (1 << 20))
            file.flush()


def many_files(x):
    for number in range(1 << 20):
        Path(f"file{number}").write_bytes(b"\1" * (1 << 20))
        time.sleep(0.005)


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


def leave_children(x):
    """Ends well, and leaves a child that would go on."""
    subprocess.Popen(["sleep", "778"], start_new_session=True)
    return x + 1


def kill_guard(x):
    os.kill(os.getppid(), 9)
    time.sleep(60)


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
    """A lab's own start-up file hides errors; here the compiler disappears as well."""
    torch._dynamo.config.suppress_errors = True
    os.environ["PATH"] = "/nonexistent"
    return one(device, dtype)


def dead_code(x):
    print("a")
    torch.sort(x)
    return x


def _stage(x, word):
    return torch.sort(x)[0] if word else x


@torch._dynamo.disable(recursive=False)
def _stages(x):
    for word in "abcdefghijkl":  # each word is a guard of its own
        x = _stage(x, word)
    return x


def recompile(x):
    return _stages(x)


def out_of_sight(device, dtype):
    torch.compiler.set_stance("force_eager")
    return one(device, dtype)


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
    x = x @ x
    return x  # noqa: RET504  both graphs are to have the same names


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


@torch._dynamo.disable
def pipe_in_the_way(x):
    Path("phase").unlink(missing_ok=True)
    os.mkfifo("phase")
    os.kill(os.getpid(), signal.SIGKILL)


@torch._dynamo.disable
def no_log(x):
    Path("log").unlink(missing_ok=True)
    time.sleep(0.6)  # the guard looks at it meanwhile
    raise ValueError("without a log")


def odd_words(x):
    raise ValueError("bad name \udc80")


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
    "dead_code": ("a graph without a result", dead_code, one),
    "in_place": ("changes its input", in_place, one),
    "breaks": ("two breaks", breaks, one),
    "same_twice": ("the same graph twice", same_twice, one),
    "complex_numbers": ("complex", complex_numbers, one),
    "dropout": ("random", dropout, one),
    "half_inverse": ("a dtype that LAPACK lacks", half_inverse, one),
    "train": ("forward and backward", train, one),
    "pipe_in_the_way": ("a pipe where a file was", pipe_in_the_way, one),
    "no_log": ("removes its log", no_log, one),
    "odd_words": ("text that no record may hold", odd_words, one),
    "compile_disabled": ("Dynamo is told to stay away", sort, out_of_sight),
}
