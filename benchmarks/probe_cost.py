"""What isolation costs: the payload against benchmarks/plain.py, cold caches, side by side.

    python -m benchmarks.probe_cost [--pairs 5] [--json FILE]

Each run gets a new TMPDIR, so nothing is warm.  The two take turns and swap who goes first, so that
a machine that slows down slows both.  Kinds and code must be equal.  Wall and CPU seconds cover the
whole process tree (as its reaped processes add up); memory is the highest sum of proportional set
sizes over the tree, sampled, where /proc tells it.  A last pair runs with a compiler that writes
down its own times, and is not part of the ratio; and each is run once more on its used TMPDIR.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import probe_payload
from harness import wire
from harness.normalise import normal_hash

ROOT = Path(__file__).resolve().parent.parent
TARGET = 0.75  # of the plain script's wall time, on two cores


@dataclass
class Measured:
    """One run of one side.  Seconds and bytes; `codes` holds the hash of each text's normal form."""

    wall: float
    cpu: float
    memory: int
    kinds: dict[str, list[str]]
    codes: dict[str, list[str]]
    parts: dict[str, float] = field(default_factory=dict)


def tree_memory(root: int) -> int:
    """Proportional set size of a process and all below it, in bytes; 0 where /proc does not tell."""
    total = 0
    for pid in [root, *probe_payload.descendants(root)]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def measure(argv: list[str], folder: Path, path: str | None = None) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds, peak bytes) of a command with its own TMPDIR."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH", "TRITON"))}
    environment["TMPDIR"] = str(folder)
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    before, began, peak, done = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0, threading.Event()
    process = subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.25):
            peak = max(peak, tree_memory(process.pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    _, errors = process.communicate()
    wall = time.monotonic() - began
    done.set()
    sampler.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}:\n{errors.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak


def plain(folder: Path, path: str | None = None) -> Measured:
    """The one-process script."""
    out = folder / "plain.json"
    figures = measure([sys.executable, "benchmarks/plain.py", str(out)], folder, path)
    said = json.loads(out.read_text())
    functions = said["functions"]
    return Measured(
        *figures,
        kinds={name: found["kinds"] for name, found in functions.items()},
        codes={name: [normal_hash(code) for code in found["codes"]] for name, found in functions.items()},
        parts=said["seconds"],
    )


def isolated(folder: Path, path: str | None = None) -> Measured:
    """The payload."""
    out = folder / "out.jsonl"
    figures = measure([sys.executable, "probe_payload.py", "--device", "cpu", "--out", str(out)], folder, path)
    result = wire.parse(out.read_bytes())
    bad = [cell.function for cell in result.cells if cell.status not in probe_payload.RAN_STATUSES]
    if bad or result.environment is None:
        raise SystemExit(f"the payload did not answer every cell: {bad}")
    cells = {
        f"{cell.function} (CPU)": phase.cpu_s
        for cell in result.cells
        for phase in cell.phases
        if phase.name == "compile"
    }
    return Measured(
        *figures,
        kinds={cell.function: sorted(cell.kinds) for cell in result.cells},
        codes={
            cell.function: [normal_hash(result.artifacts[g.artifact]) for g in cell.graphs] for cell in result.cells
        },
        parts={**result.environment.startup, **cells},
    )


def compiler_seconds(side: object, folder: Path) -> dict[str, float]:
    """Seconds that g++ ran (added up over processes) and how often, with a g++ that writes them down."""
    real, log, shim = shutil.which("g++"), folder / "calls", folder / "bin"
    shim.mkdir()
    script = f'#!/bin/sh\nb=$(date +%s.%N)\n"{real}" "$@"\nr=$?\necho "$b $(date +%s.%N)" >> "{log}"\nexit $r\n'
    (shim / "g++").write_text(script)
    (shim / "g++").chmod(0o755)
    found = side(folder, str(shim))  # type: ignore[operator]
    times = [tuple(map(float, line.split())) for line in log.read_text().splitlines()]
    return {**found.parts, "g++": sum(end - begin for begin, end in times), "g++ calls": len(times)}


def in_new_directory(side: object, *arguments: object) -> Measured:
    """Run one side in a directory that did not exist before and does not after."""
    with tempfile.TemporaryDirectory(prefix="probe-cost-") as folder:
        return side(Path(folder), *arguments)  # type: ignore[operator, no-any-return]


def second_run(side: object) -> float:
    """Wall seconds of a second run on the TMPDIR that a first one used."""
    with tempfile.TemporaryDirectory(prefix="probe-cost-") as folder:
        side(Path(folder))  # type: ignore[operator]
        return side(Path(folder)).wall  # type: ignore[operator, no-any-return]


def pairs(count: int) -> tuple[list[Measured], list[Measured]]:
    """`count` interleaved pairs, the first of each pair alternating."""
    ours, theirs = [], []
    for number in range(count):
        order = (isolated, plain) if number % 2 else (plain, isolated)
        for side in order:
            (ours if side is isolated else theirs).append(in_new_directory(side))
        one, other = ours[-1], theirs[-1]
        if one.kinds != other.kinds or one.codes != other.codes:
            raise SystemExit(f"kinds or code differ: {one.kinds} {one.codes} against {other.kinds} {other.codes}")
        print(
            f"pair {number + 1}: payload {one.wall:.1f} s, plain {other.wall:.1f} s, ratio {one.wall / other.wall:.2f}",
            flush=True,
        )
    return ours, theirs


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def main() -> int:
    """Print the figures; 1 if the median ratio is above the target."""
    parser = argparse.ArgumentParser(description="the payload's wall time against a plain one-process script")
    parser.add_argument("--pairs", type=int, default=5, help="interleaved pairs (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    options = parser.parse_args()
    ours, theirs = pairs(options.pairs)
    ratios = [one.wall / other.wall for one, other in zip(ours, theirs, strict=True)]
    figures = {
        "cores": os.cpu_count(), "pairs": options.pairs, "ratio": spread(ratios),
        "payload": {"wall_s": spread([m.wall for m in ours]), "cpu_s": spread([m.cpu for m in ours]),
                    "peak_megabytes": spread([m.memory / 2**20 for m in ours])},
        "plain": {"wall_s": spread([m.wall for m in theirs]), "cpu_s": spread([m.cpu for m in theirs]),
                  "peak_megabytes": spread([m.memory / 2**20 for m in theirs])},
        "second_run_s": {"payload": round(second_run(isolated), 1), "plain": round(second_run(plain), 1)},
    }  # fmt: skip
    for name, side in (("payload", isolated), ("plain", plain)):
        with tempfile.TemporaryDirectory(prefix="probe-cost-") as folder:
            figures[name]["seconds_by_part"] = {k: round(v, 2) for k, v in compiler_seconds(side, Path(folder)).items()}  # type: ignore[index]
    print(json.dumps(figures, indent=1))
    if options.json:
        runs = {"payload": [asdict(m) for m in ours], "plain": [asdict(m) for m in theirs]}
        options.json.write_text(json.dumps({**figures, "runs": runs}, indent=1) + "\n")
    met = statistics.median(ratios) <= TARGET
    print(f"median ratio {statistics.median(ratios):.2f}, at most {TARGET} wanted: {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
