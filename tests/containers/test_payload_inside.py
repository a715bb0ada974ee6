"""The real payload in our own CPU image: what a closed container leaves it is enough."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import wire
from harness.launchers import containers
from harness.launchers.engine import EngineLauncher
from harness.records.containers import ContainerSpec
from harness.records.images import ImageFacts, ImageSpec
from harness.records.payload import Result
from harness.transports import Transport
from tests.containers.engine import Engine

PAYLOAD = Path(__file__).resolve().parents[2] / "probe_payload.py"

pytestmark = pytest.mark.timeout(1200)  # the image is built at first


@pytest.fixture
def launcher(
    docker_engine: Engine, cpu_image: ImageFacts, cpu_spec: ImageSpec, here: Transport,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[EngineLauncher]:  # fmt: skip
    for name, value in docker_engine.environment.items():
        monkeypatch.setenv(name, value)
    found = containers.find(here, "docker", ContainerSpec(image=cpu_spec.reference, backend="cpu"))
    assert isinstance(found, EngineLauncher)
    yield found


def probe(launcher: EngineLauncher, here: Transport, root: Path, *words: str) -> tuple[Result, int | None]:
    """The payload's result and exit code; the container and its directory are gone after it."""
    place = launcher.prepare(here, "python3", str(root))
    try:
        launcher.push(here, place, PAYLOAD)
        argv = (place.python, "-B", f"{place.seen}/probe_payload.py", "--out", f"{place.seen}/result.jsonl",
                "--workdir", f"{place.seen}/work", *words)  # fmt: skip
        launcher.start(here, place, argv, {"LC_ALL": "C.UTF-8"}, 600)
        state = launcher.poll(here, place, 0)
        while state.state == "running":  # it ends by its own deadline
            time.sleep(0.5)
            state = launcher.poll(here, place, 0)
        assert state.result_bytes, state
        return wire.parse(here.get(place.result, limit=2**26)), state.exit_code
    finally:
        launcher.cancel(here, place)
        assert launcher.clean(here, place) is None


def test_it_compiles_and_runs_in_a_closed_container(launcher: EngineLauncher, here: Transport, tmp_path: Path) -> None:
    result, code = probe(launcher, here, tmp_path, "--device", "cpu", "--function", "pointwise")
    assert code == 0 and result.end is not None and result.end.reason is None
    (cell,) = result.cells
    assert (cell.status, cell.kind) == ("generated", "cpp")


def test_a_device_that_is_not_inside_is_never_another(
    launcher: EngineLauncher, here: Transport, tmp_path: Path
) -> None:
    result, code = probe(launcher, here, tmp_path, "--device", "cuda", "--function", "pointwise")
    assert code == 5 and not result.cells
    assert result.end is not None and result.end.reason == "no_device"
