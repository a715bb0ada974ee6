"""Runs in a process of its own: captures by each route, then with helpers that are missing or broken; prints JSON."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import probe_payload

os.environ.update(probe_payload._FORCED)
import torch
from torch._inductor import utils

real = {name: getattr(utils, name) for name in ("run_and_get_code", "run_and_get_triton_code")}


def restore():
    for name, helper in real.items():
        setattr(utils, name, helper)


def alone(name):
    """That helper as it was, calling the others as they were: up to torch 2.0 it stood on its own."""
    return types.FunctionType(real[name].__code__, {**vars(utils), **real}, name)


def raising(*arguments, **named):
    raise AttributeError("moved elsewhere")


def ran_then_raised(fn, *arguments, **named):
    fn(*arguments)
    raise AssertionError("expected one or two code outputs got 3")


def told(kept):
    return {
        "codes": [probe_payload._comparable(code) for code in kept.codes],
        "route": kept.route,
        "routes": {route["name"]: route for route in kept.routes},
        "error": kept.error and type(kept.error).__name__,
        "called": kept.called,
    }


def three():
    """The payload's own functions by every route."""
    probe_payload.prepare_vector_isa()
    found = {}
    for name, (_, fn, make) in probe_payload.FUNCTIONS.items():
        for route in (None, *probe_payload.ROUTES):
            found[f"{name} {route}"] = told(probe_payload.capture(fn, make("cpu", torch.float32), route))
    return found


def square(x):
    return x @ x


def broken():
    """One after the other: gone, raising, raising after the call was made."""
    x, found = torch.ones(4, 4), {}
    for label, spoil in (
        ("first missing", lambda: delattr(utils, "run_and_get_code")),
        ("first raises", lambda: setattr(utils, "run_and_get_code", raising)),
        ("first raises late", lambda: setattr(utils, "run_and_get_code", ran_then_raised)),
        ("both raise", lambda: [setattr(utils, name, raising) for name in real]),
    ):
        utils.run_and_get_triton_code = alone("run_and_get_triton_code")
        spoil()
        found[label] = told(probe_payload.capture(square, [x]))
        restore()
    return found


def many_graphs(x):
    x = x @ x
    print("a", file=sys.stderr)
    x = x @ x
    print("b", file=sys.stderr)
    return torch.sort(x)[0]


def graphs():
    x = torch.ones(4, 4)
    found = {
        str(route): told(probe_payload.capture(many_graphs, [x], route)) for route in (None, *probe_payload.ROUTES)
    }
    found["none"] = told(probe_payload.capture(lambda x: x, [x]))
    return found


def quiet_afterwards():
    """Nothing stays attached to a logger, and no level stays changed."""
    import logging

    names = ("torch._inductor.graph.__output_code", "torch._inductor.codecache.__output_code", "torch.__trace")
    before = [(logging.getLogger(name).level, len(logging.getLogger(name).handlers)) for name in names]
    probe_payload.capture(square, [torch.ones(4, 4)])
    probe_payload.capture(raising, [torch.ones(4, 4)])
    return before == [(logging.getLogger(name).level, len(logging.getLogger(name).handlers)) for name in names]


def failing():
    """The build of the kernel fails after its text was written."""
    path, os.environ["PATH"] = os.environ["PATH"], "/nonexistent"
    try:
        return told(probe_payload.capture(lambda x: x.exp() + 5, [torch.ones(7)]))
    finally:
        os.environ["PATH"] = path


print(json.dumps({
    "three": three(), "broken": broken(), "graphs": graphs(), "quiet": quiet_afterwards(), "failing": failing(),
}))  # fmt: skip
