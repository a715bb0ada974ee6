"""Real container engines for the tests: private to one session, gone when it ends.

An engine here has its own socket and folders and no part of the machine's network: no bridge, no
packet filter rule, no forwarding (a daemon with its defaults would change all three for everybody).
Builds that need packages use the host's network.  Wheels, the stand-in base and the images that were
built stay in a cache folder between sessions: $ATLAS_TEST_CACHE, or one below ~/.cache.

The stand-in bears the name of python.org's image and is made from Debian packages, since no test may
depend on an image registry.  It holds this machine's certificates: it must never be published.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records.images import ImageSpec

STAND_IN = "docker.io/library/python:3.11-slim-bookworm"
STAND_IN_PYTHON = "3.11"
_BUNDLE = "/etc/ssl/certs/host-bundle.crt"
_CHANGES = (
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    f"ENV PIP_CERT={_BUNDLE}",
    f"ENV SSL_CERT_FILE={_BUNDLE}",
    'CMD ["python3"]',
)
MOST_MEGABYTES = 12_000
# Other people use this machine too.
_GENTLY = ("nice", "-n", "10")


class CannotRun(Exception):
    """No engine can run here; the text is the reason that a skipped test gives."""


def cache_folder() -> Path:
    """Where stays what takes long to make; made if it is not there."""
    named = os.environ.get("ATLAS_TEST_CACHE")
    base = Path(named) if named else Path.home() / ".cache" / "inductor-atlas-tests"
    base.mkdir(parents=True, exist_ok=True)
    return base


def require(*programs: str) -> None:
    """Raises CannotRun where one of them is not installed, or this user may not start an engine."""
    if os.geteuid() != 0:
        raise CannotRun("an engine of our own needs root: sudo make test")
    for program in programs:
        if shutil.which(program) is None:
            raise CannotRun(f"{program} is not installed: make system-deps")


def act(argv: Sequence[str], *, seconds: float = 120, env: Mapping[str, str] | None = None) -> str:
    """The output of one command; an AssertionError with its last words where it fails."""
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, text=True,
        errors="replace", env={**os.environ, **env} if env else None,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(argv)[:300]}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout


@dataclass
class Engine:
    """A running engine.  `argv` starts every command line, `environment` does the same for plain ones."""

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: Path

    def run(self, *words: str, seconds: float = 120) -> str:
        """The output of one command of this engine."""
        return act((*self.argv, *words), seconds=seconds)

    def containers(self) -> list[str]:
        """The names of all containers, running or not."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()


class Docker:
    """A dockerd of our own; a context manager that gives its Engine."""

    def __init__(self, folder: Path, data: Path) -> None:
        require("dockerd", "docker")
        # A client of Debian's own is as old as its daemon; others may come first on the PATH.
        client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
        socket = f"unix://{folder}/docker.sock"
        self.engine = Engine("docker", (client, "--host", socket), {"DOCKER_HOST": socket}, folder)
        self._data = data
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        folder = self.engine.folder
        argv = (
            "dockerd", "--data-root", str(self._data), "--exec-root", f"{folder}/exec", "--pidfile",
            f"{folder}/docker.pid", "--host", self.engine.environment["DOCKER_HOST"], "--bridge", "none",
            "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
        )  # fmt: skip
        with (folder / "dockerd.log").open("wb") as log:
            self._daemon = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self.engine

    def _wait(self, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self._daemon is not None
            if self._daemon.poll() is not None:
                break
            asked = subprocess.run((*self.engine.argv, "version"), capture_output=True, timeout=30, check=False)
            if asked.returncode == 0:
                return
            time.sleep(0.1)
        log = (self.engine.folder / "dockerd.log").read_text(errors="replace")
        raise CannotRun(f"dockerd does not start here, see why with: dockerd --debug\n{log[-1500:]}")

    def __exit__(self, *_: object) -> None:
        if self._daemon is None:
            return
        if self._daemon.poll() is None:
            self._sweep()
            self._daemon.terminate()
            try:
                self._daemon.wait(timeout=30)
            except subprocess.TimeoutExpired:
                # Its containerd is in the same session.
                os.killpg(self._daemon.pid, signal.SIGKILL)
                self._daemon.wait(timeout=30)
        # Network namespaces of host-network containers stay mounted and keep the folder from going.
        for mount in (self.engine.folder / "exec" / "netns").glob("*"):
            subprocess.run(("umount", str(mount)), capture_output=True, timeout=30, check=False)
        shutil.rmtree(self.engine.folder, ignore_errors=True)

    def _sweep(self) -> None:
        """No container, network or volume outlives the session; of the images those that take long stay."""
        for name in self.engine.run("ps", "--all", "--quiet").split():
            subprocess.run((*self.engine.argv, "rm", "--force", name), capture_output=True, timeout=60, check=False)
        named = self.engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
        kept = ("python:", "localhost/inductor-atlas-cpu:", "<none>")
        for name in named:
            if not name.startswith(kept):
                subprocess.run((*self.engine.argv, "image", "rm", name), capture_output=True, timeout=60, check=False)
        for kind in ("network", "volume"):
            subprocess.run((*self.engine.argv, kind, "prune", "--force"), capture_output=True, timeout=60, check=False)


class Podman:
    """podman with storage of its own and the two settings that a small virtual machine needs."""

    def __init__(self, folder: Path) -> None:
        require("podman", "runc")
        # podman raises every limit to its own ceiling, which root may not do in here; crun refuses a
        # machine with both kinds of control groups, runc takes it.
        (folder / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:20000", "nproc=32768:32768"]\n[engine]\nruntime = "runc"\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/data"\nrunroot = "{folder}/run"\n'
        )
        environment = {
            "CONTAINERS_CONF": f"{folder}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf",
        }
        words = tuple(f"{name}={value}" for name, value in environment.items())
        self.engine = Engine("podman", ("env", *words, "podman"), environment, folder)

    def __enter__(self) -> Engine:
        try:
            self.engine.run("info")
        except AssertionError as error:
            raise CannotRun(f"podman does not run here, see why with: podman info\n{error}") from None
        return self.engine

    def __exit__(self, *_: object) -> None:
        subprocess.run((*self.engine.argv, "rm", "--all", "--force"), capture_output=True, timeout=60, check=False)
        # The storage driver keeps its folder mounted upon itself; `system reset` would do the same, slowly.
        subprocess.run(("umount", f"{self.engine.folder}/data/overlay"), capture_output=True, timeout=30, check=False)
        shutil.rmtree(self.engine.folder, ignore_errors=True)


# ------------------------------------------------------- what takes long, kept between sessions


@dataclass
class Store:
    """Where a daemon keeps its images: in the cache for one session at a time, else in a folder that goes."""

    path: Path
    _lock: int | None = None

    @classmethod
    def take(cls, spare: Path) -> Store:
        """The cached store, or `spare` where another session has it."""
        cached = cache_folder() / "docker"
        cached.mkdir(exist_ok=True)
        lock = os.open(cache_folder() / "docker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return cls(spare)
        # Layers of Dockerfiles that are no more pile up: above a bound everything is made anew.
        size = act(("du", "--summarize", "--block-size=1M", str(cached))).split()[0]
        if int(size) > MOST_MEGABYTES:
            shutil.rmtree(cached)
            cached.mkdir()
        return cls(cached, lock)

    def release(self) -> None:
        """Let the next session have it."""
        if self._lock is not None:
            os.close(self._lock)
        else:
            shutil.rmtree(self.path, ignore_errors=True)


def stand_in_archive() -> Path:
    """A Debian with Python as a tar file, made once (about half a minute)."""
    made = cache_folder() / "stand-in-bookworm.tar"
    if made.exists():
        return made
    require("mmdebstrap")
    new = made.with_name(f"{made.name}.{os.getpid()}.tar")
    argv = [*_GENTLY, "mmdebstrap", "--quiet", "--variant=minbase", '--aptopt=Acquire::Languages "none"']
    argv += ["--include=ca-certificates,python3,python3-pip,python3-venv"]
    argv += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale")]
    hooks = (
        f'cp /etc/ssl/certs/ca-certificates.crt "$1{_BUNDLE}"',
        'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED; ln -s python3 "$1/usr/bin/python"',
    )
    argv += [f"--customize-hook={hook}" for hook in hooks]
    try:
        act((*argv, "bookworm", str(new)), seconds=600)
        new.rename(made)
    finally:
        new.unlink(missing_ok=True)
    return made


def import_stand_in(engine: Engine, reference: str = STAND_IN) -> None:
    """Give the engine the stand-in base, unless it has it."""
    if reference in engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split():
        return
    # docker leaves out what it takes for granted in a name.
    if (
        reference.removeprefix("docker.io/library/")
        in engine.run("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
    ):
        return
    changes = [word for change in _CHANGES for word in ("--change", change)]
    engine.run("import", *changes, str(stand_in_archive()), reference, seconds=300)


def cpu_wheels(spec: ImageSpec) -> tuple[str, ...]:
    """torch's CPU build and all that it needs, for the stand-in's Python, as pip finds them from here.

    pip's own configuration decides where from: a wheel folder, a mirror, the public index.
    """
    folder = cache_folder() / f"wheels-{spec.torch}-cp{STAND_IN_PYTHON}"
    done = folder / "complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        pip = (sys.executable, "-m", "pip")
        choose = (f"torch=={spec.torch}", "--only-binary", ":all:", "--python-version", STAND_IN_PYTHON)
        report = act(
            (*pip, "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--report", "-",
             "--target", str(folder / "unused"), *choose), seconds=300,
        )  # fmt: skip
        version = json.loads(report)["install"][0]["metadata"]["version"]
        # Without a wheel folder or mirror the index's own build is CUDA's, with its gigabytes.
        index = () if version.endswith("+cpu") else ("--index-url", spec.index)
        act((*_GENTLY, *pip, "download", "--quiet", "--dest", str(folder), *choose, *index), seconds=900)
        done.touch()
    return tuple(str(path) for path in sorted(folder.glob("*.whl")))


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
