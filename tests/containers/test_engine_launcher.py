"""The launcher of containers on real engines: what a container may do, how it ends, what is said of faults.

Small shell programs stand in for the payload; what the launcher does does not depend on torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.errors import Blocked, CommandFailed, HostError
from harness.fleet import Fleet, find_sshd
from harness.launchers import containers as launchers
from harness.launchers import engine as engine_module
from harness.launchers.base import Launcher, Place, State
from harness.launchers.engine import EngineLauncher
from harness.records.containers import ContainerSpec, EngineName
from harness.records.inventory import Host
from harness.runtimes import facts
from harness.transports import Transport, connect
from harness.transports.base import Completed
from harness.transports.local import LocalTransport
from tests.containers import tools_image
from tests.containers.engine import CannotRun, Docker, Engine, Podman

PAYLOAD = Path(__file__).resolve().parents[2] / "probe_payload.py"
SPEC = ContainerSpec(image=tools_image.IMAGE, backend="cpu", memory_bytes=2**27)


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[[str], Engine]]:
    """Engines of this module by name, each started when it is first asked for, with the image of tools."""
    running: dict[str, Engine] = {}
    with ExitStack() as stack:

        def start(name: str) -> Engine:
            if name not in running:
                # Below a folder that another user may enter: one test is about who may use the socket.
                folder = Path(tempfile.mkdtemp(prefix="atlas-engine-"))
                folder.chmod(0o755)
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                try:
                    made = Docker(folder, folder / "data") if name == "docker" else Podman(folder)
                    engine = stack.enter_context(made)
                except CannotRun as error:
                    pytest.skip(str(error))
                load(engine, tools_image.tar_of_tools(), "import", "-", tools_image.IMAGE)
                running[name] = engine
            return running[name]

        yield start


def load(engine: Engine, data: bytes, *words: str) -> None:
    done = subprocess.run([*engine.argv, *words], input=data, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def docker(engines: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch) -> Engine:
    return _used(engines("docker"), monkeypatch)


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, engines: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch) -> Engine:
    return _used(engines(request.param), monkeypatch)


def _used(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    return engine


@pytest.fixture
def here() -> Iterator[Transport]:
    transport = connect(Host(name="here", transport="local"))
    transport.open()
    yield transport
    transport.close()


class Run:
    """One container from its directory to its end."""

    def __init__(self, transport: Transport, engine: EngineName, root: Path, spec: ContainerSpec = SPEC) -> None:
        found = launchers.find(transport, engine, spec)
        assert isinstance(found, EngineLauncher)
        self.transport, self.launcher = transport, found
        as_the_runner_sees_it: Launcher = found
        self.place: Place = as_the_runner_sees_it.prepare(transport, "python3", str(root))

    def start(self, script: str, *, deadline: float = 60) -> None:
        self.start_words("sh", "-c", script, deadline=deadline)

    def start_words(self, *words: str, deadline: float = 60) -> None:
        self.launcher.push(self.transport, self.place, PAYLOAD)
        self.launcher.start(self.transport, self.place, words, {"LC_ALL": "C.UTF-8"}, deadline)

    def state(self, offset: int = 0) -> State:
        return self.launcher.poll(self.transport, self.place, offset)

    def wait(self) -> State:
        for _ in range(600):
            state = self.state()
            if state.state != "running":
                return state
            time.sleep(0.05)
        raise AssertionError(f"still running: {state}")

    def wait_for(self, word: str) -> State:
        for _ in range(600):
            state = self.state()
            if word in state.progress:
                return state
            assert state.state == "running", state
            time.sleep(0.05)
        raise AssertionError(f"{word} was not printed: {state}")

    def clean(self) -> str | None:
        return self.launcher.clean(self.transport, self.place)


@pytest.fixture
def run(engine: Engine, here: Transport, tmp_path: Path) -> Iterator[Run]:
    run = Run(here, engine.name, tmp_path)  # type: ignore[arg-type]
    yield run
    run.launcher.cancel(here, run.place)
    run.clean()


@pytest.fixture
def run_docker(docker: Engine, here: Transport, tmp_path: Path) -> Iterator[Run]:
    run = Run(here, "docker", tmp_path)
    yield run
    run.launcher.cancel(here, run.place)
    run.clean()


# ----------------------------------------------------------- what a container may do, told from inside


INSIDE = r"""
echo "id=$(id -u):$(id -g)"
echo "groups=$(id -G)"
while read -r key value; do case $key in Cap*|NoNewPrivs:) echo "$key$value";; esac; done </proc/self/status
echo "links=$(ls /sys/class/net | tr '\n' ' ')"
touch /root-file 2>/dev/null && echo wrote-root
touch /bin/x 2>/dev/null && echo wrote-bin
touch /tmp/file && echo wrote-tmp
printf '#!/bin/sh\necho ran-%s\n' tmp >/tmp/run; chmod 700 /tmp/run; /tmp/run 2>/dev/null
printf '#!/bin/sh\necho ran-%s\n' work >"$TMPDIR/run"; chmod 700 "$TMPDIR/run"; "$TMPDIR/run"
echo "tmpdir=$TMPDIR home=$HOME locale=$LC_ALL"
echo "files=$(ls /atlas | tr '\n' ' ')"
[ -e /dev/vda ] && echo saw-disk
head -c 30 /atlas/probe_payload.py | head -n 1
printf '{}\n' >/atlas/result.jsonl
exit 3
"""


def test_a_container_has_no_network_no_right_and_one_directory(run: Run) -> None:
    run.start(INSIDE)
    state = run.wait()
    lines = state.progress.splitlines()
    assert "id=65532:65532" in lines and "groups=65532" in lines
    for capability in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{capability}:0000000000000000" in lines
    assert "NoNewPrivs:1" in lines
    assert "links=lo " in lines
    assert not {"wrote-root", "wrote-bin", "ran-tmp", "saw-disk"} & set(lines)
    assert {"wrote-tmp", "ran-work", "tmpdir=/atlas/work home=/atlas/work locale=C.UTF-8"} <= set(lines)
    assert "files=container probe_payload.py progress.log stderr.log work " in lines
    assert (state.state, state.exit_code, state.exit_reason) == ("ended", 3, None)


def test_the_result_is_whole_and_nothing_stays(run: Run, engine: Engine, here: Transport) -> None:
    run.start("head -c 300000 /dev/urandom >/atlas/result.jsonl; echo done")
    state = run.wait()
    data = here.get(run.place.result, limit=2**20)
    assert state.result_bytes == len(data) == 300_000
    assert state.result_sha256 == hashlib.sha256(data).hexdigest()
    assert run.clean() is None
    assert not Path(run.place.root).exists()
    assert engine.containers() == []
    assert run.state().state == "lost"


def test_progress_is_read_in_pieces(run: Run) -> None:
    run.start("head -c 40000 /dev/zero | tr '\\0' x; echo; echo last; while :; do sleep 1; done")
    run_until = run.wait_for("x" * 1000)
    first = run_until.offset
    assert first <= 32 * 1024
    rest = run.state(first)
    while "last" not in rest.progress:
        rest = run.state(first)
    assert first + len(rest.progress) == len("x" * 40_000 + "\nlast\n")
    assert rest.state == "running" and rest.result_sha256 is None


def test_what_ran_is_recorded(run: Run) -> None:
    words = run.launcher.wrap(run.place, ("sh",), {}, 5)
    recorded = run.launcher.container_facts(run.place, words)
    assert recorded.engine == run.launcher.engine.engine
    assert recorded.engine_version[0].isdigit() and recorded.image_id and recorded.repo_digest is None
    assert (recorded.user, recorded.memory_bytes, recorded.rootless) == ("65532:65532", 2**27, False)
    assert "--read-only" in recorded.flags and recorded.image not in recorded.flags


# ----------------------------------------------------------------------------------------- endings


def test_cancel_ends_everything_inside(run: Run, engine: Engine) -> None:
    run.start("(trap '' TERM; while :; do sleep 1; done) & trap '' TERM; echo up; while :; do sleep 1; done")
    run.wait_for("up")
    assert "runs" in (run.clean() or "")
    assert run.launcher.cancel(run.transport, run.place) == ()
    assert engine.containers() == []
    assert run.launcher.cancel(run.transport, run.place) == ()  # twice is the same
    assert run.clean() is None


def test_the_payload_is_asked_before_it_is_killed(run: Run) -> None:
    run.start("trap 'echo asked >/atlas/result.jsonl; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    run.wait_for("up")
    run.launcher.cancel(run.transport, run.place)
    state = run.state()
    assert state.state == "lost" and state.result_bytes == len("asked\n") and state.result_sha256


def test_a_container_ends_at_its_own_deadline(run: Run) -> None:
    """Nobody is there to cancel it: a harness that was killed."""
    run.start("echo up; sleep 600", deadline=1)
    assert (run.wait().exit_reason, run.state().exit_code) == ("deadline", 124)


def test_a_program_that_is_not_there_did_not_start(run: Run) -> None:
    run.start_words("python3", "-c", "pass")
    state = run.wait()
    assert (state.exit_code, state.exit_reason) == (127, "not_started")
    assert "python3" in state.stderr


def test_a_second_start_does_not_end_the_first(run: Run) -> None:
    run.start("echo up; sleep 600")
    run.wait_for("up")
    with pytest.raises(CommandFailed, match="in use"):
        run.launcher.start(run.transport, run.place, ("sh",), {}, 5)
    assert run.state().state == "running"


def test_the_memory_limit_ends_the_container_and_is_said(run: Run) -> None:
    run.start_words("tail", "/dev/zero")
    state = run.wait()
    assert state.exit_code == 137 and "128 MiB" in state.stderr
    if run.launcher.engine.engine == "docker":  # podman does not learn of it on every machine
        assert state.exit_reason == "memory" and "the whole container" in state.stderr


def test_the_memory_limit_hit_by_one_process_is_said(run_docker: Run) -> None:
    run_docker.start("tail /dev/zero; echo the rest goes on")
    state = run_docker.wait()
    assert (state.exit_code, state.exit_reason) == (0, None)
    assert "the rest goes on" in state.progress
    assert "killed a process in the container" in state.stderr and "128 MiB" in state.stderr


# ------------------------------------------------------------------------------- left behind


def _labelled(docker: Engine, name: str, *, owner: int, deadline: int) -> None:
    labels = (f"inductor-atlas.run={name}", f"inductor-atlas.owner={owner}", f"inductor-atlas.deadline={deadline}")
    words = [word for label in labels for word in ("--label", label)]
    docker.run("run", "--detach", "--network", "none", "--name", name, *words, tools_image.IMAGE, "sleep", "600")


def test_a_sweep_takes_what_outlived_its_deadline_and_nothing_else(
    docker: Engine, here: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "OVERDUE", -3600.0)
    live = Run(here, "docker", tmp_path)
    live.start("echo up; sleep 600", deadline=7200)
    _labelled(docker, "overdue", owner=os.getuid(), deadline=60)
    _labelled(docker, "of-another-user", owner=4242, deadline=60)
    docker.run("run", "--detach", "--network", "none", "--name", "not-ours", tools_image.IMAGE, "sleep", "600")
    root = Path(live.place.root)
    old, young, direct = root / "run-old", root / "run-young", root / "run-direct"
    for folder in (old, young, direct):
        folder.mkdir(mode=0o700)
    (old / "container").write_text("docker\n")
    (young / "container").write_text("docker\n")
    for path in (old / "container", old, direct):
        os.utime(path, (1, 1))
    try:
        removed = live.launcher.sweep(here, str(root))
        assert sorted(removed) == sorted(["overdue", str(old)])
        assert sorted(docker.containers()) == sorted([live.launcher.name(live.place), "not-ours", "of-another-user"])
        assert young.exists() and direct.exists() and live.state().state == "running"
    finally:
        docker.run("rm", "--force", "not-ours", "of-another-user", live.launcher.name(live.place))


# ---------------------------------------------------------------------------------------- faults


def blocked(act: Callable[[], Any]) -> Blocked:
    with pytest.raises(Blocked) as caught:
        act()
    assert caught.value.hint
    return caught.value


def test_an_absent_engine(here: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for engine in ("docker", "podman", "apptainer"):
        fault = blocked(lambda engine=engine: launchers.find(here, engine, SPEC))  # type: ignore[misc]
        assert fault.reason == "engine_absent" and engine in fault.message and engine in str(fault.hint)


def test_a_daemon_that_is_down(docker: Engine, here: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.folder}/no.sock")
    fault = blocked(lambda: launchers.find(here, "docker", SPEC))
    assert fault.reason == "engine_down" and "systemctl start docker" in str(fault.hint)


def test_a_daemon_that_hangs(docker: Engine, here: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "FACT_TIMEOUT", 1.0)
    pid = int((docker.folder / "docker.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        fault = blocked(lambda: launchers.find(here, "docker", SPEC))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert fault.reason == "engine_down" and "restart docker" in str(fault.hint)


class AsUser(LocalTransport):
    """This machine as one of its users, with variables of theirs."""

    def __init__(self, name: str, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(Host(name="here", transport="local"))
        assignments = (f"{key}={value}" for key, value in (variables or {}).items())
        self.words = ("runuser", "-u", name, "--", "env", *assignments)

    def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        return super().run((*self.words, *argv), timeout=timeout)


def test_a_socket_that_refuses_this_user(docker: Engine) -> None:
    transport = AsUser("nobody")
    transport.open()
    fault = blocked(lambda: launchers.find(transport, "docker", SPEC))
    assert fault.reason == "engine_permission" and "usermod -aG docker" in str(fault.hint)


def test_an_absent_image(engine: Engine, here: Transport) -> None:
    spec = SPEC.model_copy(update={"image": "localhost/inductor-atlas-none:1"})
    fault = blocked(lambda: launchers.find(here, engine.name, spec))  # type: ignore[arg-type]
    assert fault.reason == "image_absent" and fault.hint == "atlas images build cpu"


def test_an_image_of_another_architecture_is_refused_before_anything_starts(engine: Engine, here: Transport) -> None:
    load(engine, _saved_image("atlas-test-other:1", "s390x"), "load")
    spec = SPEC.model_copy(update={"image": "atlas-test-other:1"})
    fault = blocked(lambda: launchers.find(here, engine.name, spec))  # type: ignore[arg-type]
    assert fault.reason == "image_arch" and "s390x" in fault.message
    assert engine.containers() == []


def _saved_image(name: str, architecture: str) -> bytes:
    """An image as `docker save` writes it, with one empty layer."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {"architecture": architecture, "os": "linux", "config": {},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"manifest.json": json.dumps(manifest).encode(), "config.json": json.dumps(config).encode(),
             "layer.tar": layer.getvalue()}  # fmt: skip
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def test_an_image_without_a_shell(docker: Engine, here: Transport, tmp_path: Path) -> None:
    ours = facts.find_engine(here, "docker").architecture
    assert ours is not None
    load(docker, _saved_image("atlas-test-empty:1", ours), "load")
    run = Run(here, "docker", tmp_path, SPEC.model_copy(update={"image": "atlas-test-empty:1"}))
    run.start("true")
    state = run.wait()
    assert state.exit_reason == "not_started" and "no /bin/sh" in state.stderr
    assert run.clean() is None
    assert docker.containers() == []


def test_a_gpu_that_is_not_there_never_starts(engine: Engine, here: Transport) -> None:
    if facts.find_host(here).nvidia_gpus:
        pytest.skip("needs a machine without a GPU")
    spec = SPEC.model_copy(update={"backend": "cuda"})
    fault = blocked(lambda: launchers.find(here, engine.name, spec))  # type: ignore[arg-type]
    assert fault.reason in ("device_missing", "driver_missing") and "nvidia-smi" in str(fault.hint)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True, timeout=30)
    yield folder
    subprocess.run(["umount", folder], check=True, timeout=30)


def test_a_full_disk_is_said_before_the_start(docker: Engine, here: Transport, small_disk: Path) -> None:
    fault = blocked(lambda: Run(here, "docker", small_disk))
    assert fault.reason == "disk_full" and "KiB free" in fault.message and "workdir" in str(fault.hint)
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_while_it_runs(
    docker: Engine, here: Transport, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "FREE_KIB", 1)
    run = Run(here, "docker", small_disk)
    run.start('dd if=/dev/zero of="$TMPDIR/big" bs=64k')
    state = run.wait()
    assert state.exit_code == 1 and "No space left on device" in state.stderr
    assert run.clean() is None


def test_a_disk_without_programs(docker: Engine, here: Transport, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,noexec,size=600m", small_disk], check=True, timeout=30)
    fault = blocked(lambda: Run(here, "docker", small_disk))
    assert fault.reason == "noexec" and list(small_disk.iterdir()) == []


def test_a_directory_that_no_volume_can_name(docker: Engine, here: Transport, tmp_path: Path) -> None:
    root = tmp_path / "with:colon"
    assert blocked(lambda: Run(here, "docker", root)).reason == "no_writable_dir"
    assert list(root.iterdir()) == []


def test_a_root_of_somebody_else_is_refused(docker: Engine, here: Transport, tmp_path: Path) -> None:
    root = tmp_path / f"inductor-atlas-{os.getuid()}"
    root.mkdir(mode=0o755)
    assert blocked(lambda: Run(here, "docker", tmp_path)).reason == "no_writable_dir"
    root.chmod(0o700)
    os.chown(root, 65534, 0)
    assert blocked(lambda: Run(here, "docker", tmp_path)).reason == "no_writable_dir"
    root.rmdir()
    root.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    assert blocked(lambda: Run(here, "docker", tmp_path)).reason == "no_writable_dir"


def test_a_link_in_place_of_the_result_is_not_read(run: Run) -> None:
    run.start("ln -s /etc/passwd /atlas/result.jsonl 2>/dev/null || echo no ln")
    state = run.wait()
    assert state.result_bytes == 0 and state.result_sha256 is None


# --------------------------------------------------------------------------------- without root


@pytest.fixture
def rootless_podman() -> Iterator[AsUser]:
    """A user of our own with a podman of theirs, and the image of tools in it."""
    name = "atlas-rootless"
    for program in ("podman", "runc", "newuidmap", "useradd", "runuser"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: make system-deps")
    if os.geteuid() != 0:
        pytest.skip("a user of our own needs root: sudo make test")
    home = Path(tempfile.mkdtemp(prefix="atlas-rootless-"))
    subprocess.run(["userdel", name], capture_output=True, check=False, timeout=30)  # of a run that was killed
    subprocess.run(["useradd", "--no-create-home", "--home-dir", home, name], check=True, timeout=30)
    (home / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:20000", "nproc=32768:32768"]\n[engine]\nruntime = "runc"\n'
    )
    (home / "storage.conf").write_text('[storage]\ndriver = "vfs"\n')
    (home / "run").mkdir()
    for path in (home, *home.iterdir()):
        shutil.chown(path, name)
    transport = AsUser(name, {
        "HOME": str(home), "XDG_RUNTIME_DIR": f"{home}/run", "CONTAINERS_CONF": f"{home}/containers.conf",
        "CONTAINERS_STORAGE_CONF": f"{home}/storage.conf",
    })  # fmt: skip
    transport.open()
    try:
        done = subprocess.run(
            [*transport.words, "podman", "import", "-", tools_image.IMAGE],
            cwd="/", input=tools_image.tar_of_tools(), capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        yield transport
    finally:
        subprocess.run([*transport.words, "podman", "system", "reset", "--force"], cwd="/", capture_output=True,
                       timeout=120, check=False)  # fmt: skip
        pause = home / "run" / "libpod" / "tmp" / "pause.pid"
        if pause.exists():  # holds the user's namespace open
            os.kill(int(pause.read_text()), signal.SIGKILL)
        subprocess.run(["userdel", name], capture_output=True, check=False, timeout=30)
        shutil.rmtree(home, ignore_errors=True)


def test_rootless_podman_keeps_its_user_and_has_no_capability(rootless_podman: AsUser) -> None:
    root = Path(tempfile.mkdtemp(prefix="atlas-place-"))
    shutil.chown(root, "atlas-rootless")
    try:
        run = Run(rootless_podman, "podman", root)
        assert run.launcher.engine.rootless
        uid = run.launcher.host.uid
        run.start(INSIDE)
        state = run.wait()
        lines = state.progress.splitlines()
        assert f"id={uid}:{run.launcher.host.gid}" in lines and {"CapEff:0000000000000000", "links=lo "} <= set(lines)
        assert not {"wrote-root", "wrote-bin", "saw-disk"} & set(lines)
        assert Path(run.place.result).stat().st_uid == uid
        assert run.clean() is None and list(root.iterdir()) == []
    finally:
        shutil.rmtree(root)


# ------------------------------------------------------- a host with an engine and sshd, nothing else

NEEDED = ("cat", "chmod", "chown", "date", "df", "find", "head", "id", "ls", "mkdir", "mktemp", "rm", "rmdir",
          "sha256sum", "tail", "uname", "wc", "docker")  # fmt: skip


def test_over_ssh_a_host_needs_an_engine_and_no_python(docker: Engine, tmp_path: Path) -> None:
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None, name
        (programs / name).symlink_to(found)
    variables = {"PATH": str(programs), **docker.environment}
    with Fleet(tmp_path / "fleet") as fleet:
        transport = connect(fleet.add("lab", set_env=variables), ssh_config=fleet.ssh_config)
        transport.open()
        try:
            run = Run(transport, "docker", tmp_path)
            run.start("echo hello; printf '{}' >/atlas/result.jsonl")
            state = run.wait()
            assert (state.exit_code, state.progress) == (0, "hello\n")
            data = transport.get(run.place.result, limit=100)
            assert hashlib.sha256(data).hexdigest() == state.result_sha256
            assert run.clean() is None
        finally:
            transport.close()
    assert docker.containers() == [] and not Path(run.place.root).exists()


def test_a_daemon_that_goes_away_costs_the_row_only(
    docker: Engine, run_docker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_docker.start("echo up; sleep 600")
    run_docker.wait_for("up")
    with monkeypatch.context() as away:
        away.setenv("DOCKER_HOST", f"unix://{docker.folder}/no.sock")
        with pytest.raises(HostError) as caught:
            run_docker.state()
    assert caught.value.reason == "engine_down"
