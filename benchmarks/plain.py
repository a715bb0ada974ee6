"""The probe's work without its care: one process, Inductor's defaults, its own helper, eager beside it.

    python benchmarks/plain.py OUT.json

Writes kinds and texts of the payload's three functions, and seconds of import, ISA detection and
each function.  It is what benchmarks/probe_cost.py measures the payload against.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import probe_payload


def main(out: str) -> None:
    """Compile, run and compare each function; ISA detection is timed apart, as Inductor would reach it first."""
    began = time.monotonic()
    import torch
    import torch._inductor.compile_fx
    from torch._inductor.cpu_vec_isa import pick_vec_isa
    from torch._inductor.utils import run_and_get_code

    seconds = {"import": time.monotonic() - began}
    began = time.monotonic()
    pick_vec_isa()
    seconds["vector_isa"] = time.monotonic() - began
    functions = {}
    for name, (_, function, make_inputs) in probe_payload.FUNCTIONS.items():
        began = time.monotonic()
        inputs = make_inputs("cpu", torch.float32)
        result, codes = run_and_get_code(torch.compile(function), *inputs)
        torch.testing.assert_close(result, function(*inputs))
        kinds = sorted({kind for code in codes for kind in probe_payload.classify(code).kinds})
        functions[name] = {"kinds": kinds, "codes": codes}
        seconds[name] = time.monotonic() - began
    Path(out).write_text(json.dumps({"functions": functions, "seconds": seconds}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
