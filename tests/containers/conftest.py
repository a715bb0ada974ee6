"""Engines, the CPU image and a registry, each started when the first test asks for it.

A session's docker keeps its images in the cache folder (tests/containers/engine.py), so that the
image is built once a machine and not once a run.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import images
from harness.records.images import BuildOptions, ImageFacts, ImageSpec
from harness.records.inventory import Host
from harness.transports import Transport, connect
from tests.containers import engine as engines
from tests.containers.engine import CannotRun, Engine


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """A short path: a socket's may have 108 bytes, and pytest's own folders are longer."""
    folder = Path(tempfile.mkdtemp(prefix=f"atlas-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Engine]:
    """A docker engine of this session, with the stand-in base image."""
    with _folder("docker") as folder, _folder("images") as spare:
        store = engines.Store.take(spare)
        try:
            with engines.Docker(folder, store.path) as engine:
                engines.import_stand_in(engine)
                yield engine
        except CannotRun as error:
            pytest.skip(str(error))
        finally:
            store.release()


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[Engine]:
    """podman with storage of this session, empty."""
    with _folder("podman") as folder:
        try:
            with engines.Podman(folder) as engine:
                yield engine
        except CannotRun as error:
            pytest.skip(str(error))


@pytest.fixture(scope="session")
def here() -> Iterator[Transport]:
    """This machine."""
    transport = connect(Host(name="here", transport="local"))
    transport.open()
    yield transport
    transport.close()


@pytest.fixture(scope="session")
def cpu_spec() -> ImageSpec:
    """The CPU image as docker/images.yaml has it."""
    return images.select(images.load_catalog(), ["cpu"])[0]


@pytest.fixture(scope="session")
def offline(cpu_spec: ImageSpec, docker_engine: Engine) -> BuildOptions:
    """A site without package index: wheels from a folder and nothing else."""
    return BuildOptions(wheels=engines.cpu_wheels(cpu_spec), arguments={"PIP_NO_INDEX": "1"}, network="host")


@pytest.fixture(scope="session")
def cpu_image(docker_engine: Engine, here: Transport, cpu_spec: ImageSpec, offline: BuildOptions) -> ImageFacts:
    """Our own CPU image, built by the harness (a minute at first, a second from the cache)."""
    return images.build(here, docker_engine.argv, cpu_spec, offline, source="a test", timeout=900)


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """The address of a real, empty image registry on the loopback."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: make system-deps")
    with _folder("registry") as folder:
        port = engines.free_port()
        (folder / "config.yml").write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
            f"http: {{addr: 127.0.0.1:{port}}}\nlog: {{level: error}}\n"
        )
        argv = [program, "serve", str(folder / "config.yml")]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(f"http://127.0.0.1:{port}/v2/")
                yield f"127.0.0.1:{port}"
            finally:
                process.kill()


def _wait_for(address: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert time.monotonic() < end, f"{address} does not answer"
            time.sleep(0.05)
