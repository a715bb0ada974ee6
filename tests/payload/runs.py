"""Starting the real payload and looking at what it left: a result file, and processes that should be gone."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.records.payload import CellRecord, Result
from harness.wire import parse

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD = ROOT / "probe_payload.py"
HERE = Path(__file__).parent
LIMIT = 400  # seconds for any one run; nothing here should come near

# What a user of the lab may have in his shell's start-up file.
LAB = {
    "TORCHDYNAMO_DISABLE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "TORCHDYNAMO_SUPPRESS_ERRORS": "1",
    "TORCH_LOGS": "dynamo",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",
}


@dataclass(frozen=True)
class Run:
    """One finished run: its exit code, what it printed, its result file and what that holds."""

    code: int
    printed: str
    data: bytes
    mark: str

    @property
    def result(self) -> Result:
        return parse(self.data)

    def cell(self, function: str) -> CellRecord:
        (cell,) = (cell for cell in self.result.cells if cell.function == function)
        return cell

    def codes(self, function: str) -> list[str]:
        """The texts of a cell's graphs, in order."""
        result = self.result
        return [result.artifacts[graph.artifact] for graph in self.cell(function).graphs]

    def left(self) -> list[str]:
        """Processes of this run that still live: every one inherits the mark in its environment."""
        return marked(self.mark)


def marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it ended meanwhile
            continue
    return found


def argv_and_environment(
    tmp: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str], str]:
    """How to start the payload so that what it leaves can be found: its own TMPDIR, and a mark."""
    mark = f"HAZARD_RUN={uuid.uuid4().hex}"
    full = {**os.environ, "TMPDIR": str(tmp), **dict([mark.split("=")]), **(environment or {})}
    return [sys.executable, str(PAYLOAD), *arguments], full, mark


def run_payload(tmp: Path, *arguments: str, environment: Mapping[str, str] | None = None, out: bool = True) -> Run:
    path = tmp / "out.jsonl"
    tmp.mkdir(exist_ok=True)
    argv, full, mark = argv_and_environment(
        tmp, *arguments, *(["--out", str(path)] if out else []), environment=environment
    )
    done = subprocess.run(argv, env=full, capture_output=True, text=True, timeout=LIMIT, check=False)
    print(done.stderr, file=sys.stderr)
    assert "Traceback" not in done.stderr
    return Run(done.returncode, done.stdout, path.read_bytes() if out else b"", mark)
