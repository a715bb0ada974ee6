"""Hosts without torch for tests of everything around the payload: a python that plays the payload.

Such a python is a real one for all that the harness does (make a directory, keep, poll, clean); only
where it is to run probe_payload.py it runs a few lines of the test's instead.  `RESULT` is what a
payload writes, made of real Inductor texts; the machine that it tells of is invented.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from tests import sample_report

# RESULT and OUT are set before these run.
ANSWER = """
print("cell cpu matmul extern_only", flush=True)
Path(OUT).write_bytes(RESULT)
"""
# Everything but the end record, then nothing for long.
HANG = """
import time
Path(OUT).write_bytes(b"".join(RESULT.splitlines(keepends=True)[:-1]))
print("cell cpu matmul extern_only", flush=True)
time.sleep(600)
"""
# The same, deaf to a gentle word.
STUBBORN = f"""
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
{HANG}
"""

_PYTHON = """#!{real}
import os, sys
from pathlib import Path
if not any(word.endswith("/probe_payload.py") for word in sys.argv[1:3]):
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
OUT = sys.argv[sys.argv.index("--out") + 1]
RESULT = Path({result!r}).read_bytes()
{program}
"""


def result(*, status: str | None = None) -> bytes:
    """A whole result file of one device and one cell; `status` is the cell's, if not that of its code."""
    code = sample_report.text("2.13-cpu/matmul.py")
    fields = {"status": status} if status else {}
    made = sample_report.result(
        sample_report.environment("2.13.0+cpu", vector_isa="avx512"),
        [sample_report.device("cpu", "cpu", name="a stand-in")],
        [sample_report.cell("cpu", "matmul", code, **fields)],
    )
    assert made.run is not None and made.environment is not None and made.end is not None
    records = [made.run, made.environment, *made.devices, *made.cells, made.end]
    lines = [json.loads(record.model_dump_json()) for record in records]
    artifact = {"record": "artifact", "sha256": sample_report.sha(code), "text": code}
    lines.insert(3, artifact)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def python(folder: Path, name: str, program: str, data: bytes | None = None) -> str:
    """Path of a python in `folder` that runs `program` in the payload's place."""
    kept = folder / f"{name}.jsonl"
    kept.write_bytes(result() if data is None else data)
    path = folder / f"{name}-python"
    path.write_text(_PYTHON.format(real=sys.executable, result=str(kept), program=program))
    path.chmod(0o755)
    return str(path)


def processes_in(folders: Iterable[Path]) -> list[int]:
    """Pids of what was started for a run directory in one of the folders (Linux)."""
    words = [os.fsencode(f"ATLAS_RUN_DIRECTORY={folder}/") for folder in folders]
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            text = environment.read_bytes()
            if any(word in text for word in words):
                found.append(int(environment.parent.name))
    return found


def kill_in(folders: Iterable[Path]) -> None:
    """End what a test left running there."""
    for pid in processes_in(folders):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
