"""Can this image compile, and is its device really there?

    python selftest.py            one C++ kernel compiled, linked, run and compared with eager
    python selftest.py --device   and one kernel on the device of this image's backend

The probe itself does the work (probe_payload.py beside this file): whatever it cannot do here, a real
run could not do either.  One JSON line on standard output; exit code 0 if all is well, 1 if a piece is
missing, which `missing` then names by the probe's own reason code.  Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PAYLOAD = Path(__file__).resolve().with_name("probe_payload.py")
GENERATORS = {"cpu": "cpp", "cuda": "triton", "rocm": "triton", "xpu": "triton"}
# Seconds for one cell and for all: a cold first compile on a slow, loaded machine took one minute.
CELL_SECONDS, ALL_SECONDS = 300, 900


def probe(devices):
    """The records of one run of the probe and, where it wrote none, the end of what it said."""
    with tempfile.TemporaryDirectory(prefix="selftest-") as folder:
        result = Path(folder, "result.jsonl")
        argv = [sys.executable, str(PAYLOAD), "--function", "pointwise", "--out", str(result)]
        argv += ["--workdir", folder, "--timeout", str(CELL_SECONDS), "--deadline", str(ALL_SECONDS)]
        for device in devices:
            argv += ["--device", device]
        try:
            # The probe keeps its own deadlines; this one is for a probe that does not.
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=ALL_SECONDS + 60, check=False,
            )  # fmt: skip
            said = done.stderr
        except subprocess.TimeoutExpired:
            said = b"the probe did not end"
        lines = result.read_text(encoding="ascii").splitlines() if result.exists() else []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # the last line of a probe that was killed
    return records, said.decode("utf-8", "replace").strip()[-2000:]


def first_fault(records, backend, with_device, said):
    """(missing, message, hint) of the first thing that is wrong, or three times None."""
    facts = next((record for record in records if record["record"] == "environment"), {})
    torch, build = facts.get("torch_version"), facts.get("torch_build")
    if torch and build != backend:
        message = f"this image is for {backend}, but its torch {torch} is a {build} build"
        return "torch_build", message, "check the index in docker/images.yaml and the wheel folder"
    for name in ["cpu", backend] if with_device and backend != "cpu" else ["cpu"]:
        # A device record of ROCm is called cuda:0, as torch calls it.
        places = [r["device"] for r in records if r["record"] == "device" and r["backend"] == name]
        seen = [r for r in records if r["record"] in ("device", "cell") and r["device"] in places]
        for record in seen:
            if record["status"] not in ("ok", "generated"):
                reason = record.get("reason") or record["status"]
                return reason, record.get("message") or record["status"], record.get("hint")
        cells = [record for record in seen if record["record"] == "cell"]
        if not cells and name == "cpu":
            return "isolation", said or "the probe gave no result", None
        if not cells:
            why = next((b.get("reason") for b in facts.get("backends", []) if b["name"] == name), None)
            return "device_missing", f"no {name} device in this container: {why or 'none was found'}", None
        for cell in cells:
            if GENERATORS[name] not in cell.get("kinds", {}):
                found = ", ".join(cell.get("kinds", {})) or "nothing"
                message = f"{cell['device']} was expected to get {GENERATORS[name]} kernels, and got {found}"
                return "compile_error", message, None
    if backend != "cpu" and not facts.get("triton_version"):
        return "triton_missing", "Triton is not installed beside this torch", "check the index in docker/images.yaml"
    return None, None, None


def verdict(records, backend, with_device, said=""):
    """What the JSON line holds."""
    facts = next((record for record in records if record["record"] == "environment"), {})
    missing, message, hint = first_fault(records, backend, with_device, said)
    cells = [
        {"device": cell["device"], "status": cell["status"], "kind": cell.get("kind")}
        for cell in records
        if cell["record"] == "cell"
    ]
    return {
        "ok": missing is None, "backend": backend, "device_checked": with_device or backend == "cpu",
        "missing": missing, "message": message, "hint": hint, "torch": facts.get("torch_version"),
        "triton": facts.get("triton_version"), "cxx": facts.get("cxx_version"), "cells": cells,
    }  # fmt: skip


def main(arguments):
    """The exit code."""
    backend = os.environ.get("ATLAS_BACKEND", "")
    if arguments not in ([], ["--device"]) or backend not in GENERATORS:
        sys.stderr.write(f"usage: ATLAS_BACKEND={'|'.join(GENERATORS)} selftest.py [--device]\n")
        return 2
    with_device = arguments == ["--device"]
    records, said = probe(["cpu", backend] if with_device and backend != "cpu" else ["cpu"])
    answer = verdict(records, backend, with_device, said)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
