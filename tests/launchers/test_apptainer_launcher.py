"""The launcher of apptainer images, with a shell script in place of apptainer: the keeper and the words are real."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import pytest

from harness.errors import Blocked
from harness.launchers import apptainer, containers
from harness.launchers.base import Launcher, State
from harness.records.containers import ContainerSpec
from harness.transports import Transport

PAYLOAD = Path(__file__).resolve().parents[2] / "probe_payload.py"

# Writes its words down and runs what stands after the image, unconfined.
STAND_IN = """#!/bin/sh
[ "$1" = version ] && { echo 1.3.4; exit 0; }
printf '%s\\n' "$@" >"$0.words"
while [ "${1%.sif}" = "$1" ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(STAND_IN)
    (programs / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(apptainer, "KEEPER_PYTHON", sys.executable)
    image = tmp_path / "atlas.sif"
    image.touch()
    return image


def _wait(launcher: Launcher, transport: Transport, place: object) -> State:
    for _ in range(600):
        state = launcher.poll(transport, place, 0)  # type: ignore[arg-type]
        if state.state != "running":
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_a_run_from_its_directory_to_its_end(plain: Transport, image: Path, tmp_path: Path) -> None:
    launcher: Launcher = containers.find(plain, "apptainer", ContainerSpec(image=str(image), backend="cpu"))
    place = launcher.prepare(plain, "python3", str(tmp_path / "runs"))
    assert (place.python, place.seen) == ("python3", "/atlas")
    assert launcher.push(plain, place, PAYLOAD) == hashlib.sha256(PAYLOAD.read_bytes()).hexdigest()
    command = 'echo "$HOME $USER"; echo {} >result.jsonl'  # the stand-in leaves the directory where it is
    launcher.start(plain, place, ("sh", "-c", command), {"LC_ALL": "C.UTF-8"}, 60)
    state = _wait(launcher, plain, place)
    assert (state.state, state.exit_code, state.progress) == ("ended", 0, "/atlas/work atlas\n")
    assert plain.get(place.result, limit=100) == b"{}\n"
    words = (tmp_path / "programs" / "apptainer.words").read_text().splitlines()
    assert words[:3] == ["exec", "--containall", "--no-home"] and f"{place.folder}:/atlas" in words
    assert launcher.clean(plain, place) is None and not Path(place.folder).exists()


def test_cancel_ends_it(plain: Transport, image: Path, tmp_path: Path) -> None:
    launcher: Launcher = containers.find(plain, "apptainer", ContainerSpec(image=str(image), backend="cpu"))
    place = launcher.prepare(plain, "python3", str(tmp_path / "runs"))
    launcher.push(plain, place, PAYLOAD)
    launcher.start(plain, place, ("sleep", "600"), {}, 60)
    assert launcher.cancel(plain, place) == ()
    assert launcher.poll(plain, place, 0).exit_reason == "cancelled"
    assert launcher.clean(plain, place) is None


def test_an_absent_image_is_said(plain: Transport, image: Path) -> None:
    for name in (f"{image}x", "registry/name:1"):
        with pytest.raises(Blocked) as caught:
            containers.find(plain, "apptainer", ContainerSpec(image=name, backend="cpu"))
        assert caught.value.reason == "image_absent" and "apptainer build" in str(caught.value.hint)
