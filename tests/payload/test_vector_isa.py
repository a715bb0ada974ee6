"""The short way to the vector ISA ends where Inductor's own way does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.payload.runs import LIMIT, ROOT

SHORT = "import probe_payload; print('=', probe_payload.prepare_vector_isa())"
OWN = "from torch._inductor.cpu_vec_isa import pick_vec_isa; print('=', str(pick_vec_isa()) or 'scalar')"
# After the short way Inductor's own question, asked by its own code, gets the same answer at once.
AFTER = SHORT + "; " + OWN


def ask(code: str, tmp: Path, capability: str | None) -> list[str]:
    """What a fresh process with empty caches says."""
    tmp.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "ATEN_CPU_CAPABILITY"}
    environment.update(TMPDIR=str(tmp), TORCHINDUCTOR_CACHE_DIR=str(tmp / "cache"))
    if capability:
        environment["ATEN_CPU_CAPABILITY"] = capability
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return [line.removeprefix("= ") for line in done.stdout.splitlines() if line.startswith("= ")]


def built(tmp: Path) -> int:
    """Test programs that were compiled on the way."""
    return len(list(tmp.rglob("*.so")))


@pytest.mark.parametrize("capability", [None, "default", "avx2"])
def test_agrees_with_inductor(tmp_path: Path, capability: str | None) -> None:
    (own,) = ask(OWN, tmp_path / "own", capability)
    assert ask(AFTER, tmp_path / "short", capability) == [own, own]
    assert built(tmp_path / "short") <= built(tmp_path / "own")
