"""Command lines of containers and the facts they are made from, on tables of what real programs print."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from pydantic import ValidationError

from harness.backends import BACKENDS, choose_backends
from harness.errors import Blocked, CommandFailed, WireError
from harness.launchers.base import Place
from harness.launchers.engine import EngineLauncher, _abandoned, _reason_of
from harness.records.containers import (
    ContainerJob,
    ContainerSpec,
    DeviceFile,
    EngineFacts,
    HostFacts,
    ImageState,
)
from harness.runtimes import CONTAINERS, docker, facts, faults, podman, replies, run_words
from harness.transports.base import Completed

# ------------------------------------------------------------------- what real programs print

DOCKER_INFO: dict[str, Any] = {
    "ServerVersion": "20.10.24+dfsg1", "OSType": "linux", "Architecture": "x86_64", "MemTotal": 25276510208,
    "MemoryLimit": True, "SwapLimit": True, "PidsLimit": True, "CgroupDriver": "cgroupfs", "CgroupVersion": "1",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}}, "DefaultRuntime": "runc",
    "SecurityOptions": ["name=seccomp,profile=default"], "CDISpecDirs": None, "ServerErrors": None,
    "ClientInfo": {"Version": "28.2.2", "Context": "default", "Plugins": [], "Warnings": None}, "Warnings": None,
}  # fmt: skip

PODMAN_INFO: dict[str, Any] = {
    "host": {
        "arch": "amd64", "os": "linux", "cgroupVersion": "v2", "memTotal": 25276510208,
        "cgroupControllers": ["cpu", "io", "memory", "pids"],
        "ociRuntime": {"name": "crun", "path": "/usr/bin/crun", "version": "crun version 1.8.1"},
        "security": {"rootless": True, "selinuxEnabled": True, "seccompEnabled": True, "apparmorEnabled": False},
    },
    "store": {"graphDriverName": "overlay"}, "version": {"APIVersion": "4.3.1", "Version": "4.3.1"},
}  # fmt: skip

SMI = """\
GPU 0: NVIDIA H200 (UUID: GPU-6b9a1c2d-0000-1111-2222-333344445555)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaabbbb-cccc-dddd-eeee-ffff00001111)
  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)
  MIG 2g.20gb     Device  1: (UUID: MIG-66666666-7777-8888-9999-000000000000)
"""
SMI_QUERY = "0, 580.65.06, 9.0\n1, 580.65.06, 8.0\n"
MIG = "MIG-66666666-7777-8888-9999-000000000000"

HOST_LISTING = """\
Welcome to the lab.  uid=0 is not for you.
ATLAS-HOST system=Linux
ATLAS-HOST machine=x86_64
ATLAS-HOST uid=1000
ATLAS-HOST gid=1000
ATLAS-HOST groups=1000 27 992
ATLAS-HOST file=crw-rw---- 1 0 992 235, 0 Nov 30 09:12 /dev/kfd
ATLAS-HOST file=crw-rw----+ 1 0 993 226, 128 Nov 30 09:12 /dev/dri/renderD128
ATLAS-HOST file=crw-rw---- 1 0 993 226, 129 Nov 30 09:12 /dev/dri/renderD129
ATLAS-HOST file=crw-rw----. 1 0 44 226, 0 Nov 30 09:12 /dev/dri/card0
ATLAS-HOST vendor=/dev/dri/renderD128 0x8086
ATLAS-HOST vendor=/dev/dri/renderD129 0x1002
ATLAS-HOST cdi=/etc/cdi/nvidia.yaml
ATLAS-HOST toolkit=nvidia-ctk
ATLAS-HOST selinux=1
ATLAS-HOST amd=6.12.12
ATLAS-HOST end=
"""

CDI_LIST = """\
time="2026-11-30T09:00:00Z" level=info msg="Found 3 CDI devices"
nvidia.com/gpu=0
nvidia.com/gpu=1:1
nvidia.com/gpu=all
"""


def docker_info(**changes: Any) -> EngineFacts:
    return facts.parse_docker(json.dumps({**DOCKER_INFO, **changes}).encode())


def podman_info(**host: Any) -> EngineFacts:
    return facts.parse_podman(json.dumps({**PODMAN_INFO, "host": {**PODMAN_INFO["host"], **host}}).encode())


PLAIN = HostFacts(system="Linux", machine="x86_64", uid=1000, gid=1000, groups=(1000,), selinux_enforcing=False)
NVIDIA = PLAIN.model_copy(
    update={"nvidia_gpus": facts.parse_nvidia(SMI, SMI_QUERY)[0], "nvidia_driver": "580.65.06", "nvidia_toolkit": True}
)
ROOTFUL_PODMAN = podman_info(security={"rootless": False, "selinuxEnabled": False})
ROOTLESS_DOCKER = docker_info(SecurityOptions=["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"])


def render(path: str, gid: int, *, mode: str = "crw-rw----", vendor: str = "0x8086") -> DeviceFile:
    return DeviceFile(path=path, mode=mode, uid=0, gid=gid, vendor=vendor)


INTEL = PLAIN.model_copy(
    update={"device_files": (render("/dev/dri/renderD128", 993), render("/dev/dri/renderD129", 993))}
)
AMD = PLAIN.model_copy(update={"device_files": (
    DeviceFile(path="/dev/kfd", mode="crw-rw----", uid=0, gid=109),
    render("/dev/dri/renderD128", 44, vendor="0x1002"),
)})  # fmt: skip


def job(engine: EngineFacts | None = None, host: HostFacts = PLAIN, **changes: Any) -> ContainerJob:
    return ContainerJob.model_validate({
        "image": "localhost/inductor-atlas-cpu:2.13.0", "backend": "cpu", "name": "inductor-atlas-1000-run-x",
        "folder": "/scratch/inductor-atlas-1000/run-x", "uid": 1000, "gid": 1000, "deadline": 90.4,
        "engine": engine or docker_info(), "host": host, **changes,
    })  # fmt: skip


def options(words: tuple[str, ...], name: str) -> list[str]:
    """The values of an option, in order, among the words before the image."""
    before = words[: words.index("localhost/inductor-atlas-cpu:2.13.0")]
    return [value for option, value in itertools.pairwise(before) if option == name]


def wrap(a_job: ContainerJob) -> tuple[str, ...]:
    return CONTAINERS[a_job.engine.engine](("python3", "-B", "/atlas/probe_payload.py", "--device", "cpu"), a_job)


def blocked(act: Any, *arguments: Any) -> Blocked:
    with pytest.raises(Blocked) as caught:
        act(*arguments)
    assert caught.value.hint
    return caught.value


# ----------------------------------------------------------------------------------- hardening


@pytest.mark.parametrize("engine", [docker_info(), ROOTLESS_DOCKER, podman_info(), ROOTFUL_PODMAN],
                         ids=["docker", "rootless docker", "podman", "rootful podman"])  # fmt: skip
def test_every_container_is_closed(engine: EngineFacts) -> None:
    words = wrap(job(engine))
    assert words[:3] == (engine.engine, "run", "--detach")
    for name, value in (("--network", "none"), ("--cap-drop", "ALL"), ("--pull", "never"), ("--pids-limit", "4096"),
                        ("--shm-size", str(2**30)), ("--name", "inductor-atlas-1000-run-x"),
                        ("--ipc", "private")):  # fmt: skip
        assert options(words, name) == [value]
    assert "no-new-privileges" in options(words, "--security-opt")
    assert {"--read-only", "--init"} <= set(words)
    assert options(words, "--tmpfs")[0].startswith("/tmp:rw,noexec,nosuid,nodev")
    assert options(words, "--memory") == options(words, "--memory-swap") == [str(25276510208 * 3 // 4)]
    assert "--privileged" not in words and not options(words, "--device") and not options(words, "--gpus")
    assert options(words, "--label") == [
        "inductor-atlas.run=inductor-atlas-1000-run-x", "inductor-atlas.owner=1000", "inductor-atlas.deadline=90",
    ]  # fmt: skip
    assert len(options(words, "--volume")) == 1
    assert words[-6:] == ("90", "python3", "-B", "/atlas/probe_payload.py", "--device", "cpu")


def test_the_same_job_gives_the_same_words() -> None:
    for a_job in (job(), job(podman_info()), job(host=NVIDIA, backend="cuda", environment={"B": "1", "A": "2"})):
        assert wrap(a_job) == wrap(a_job)


@pytest.mark.parametrize(
    ("engine", "user", "userns"),
    [
        (docker_info(), "1000:1000", []),
        (ROOTLESS_DOCKER, "0:0", []),
        (docker_info(SecurityOptions=["name=userns"]), "1000:1000", ["host"]),
        (podman_info(), "1000:1000", ["keep-id"]),
        (ROOTFUL_PODMAN, "1000:1000", []),
    ],
    ids=["docker", "rootless docker", "remapped docker", "podman", "rootful podman"],
)
def test_the_user_is_the_owner_of_the_directory(engine: EngineFacts, user: str, userns: list[str]) -> None:
    words = wrap(job(engine))
    assert options(words, "--user") == [user] and options(words, "--userns") == userns


def test_rootless_docker_says_who_its_root_is() -> None:
    assert "unprivileged user outside" in " ".join(run_words.notes(job(ROOTLESS_DOCKER)))
    assert run_words.notes(job()) == ()


def test_limits_that_an_engine_cannot_set_are_left_out_and_said() -> None:
    engine = podman_info(cgroupControllers=["pids"])
    words = wrap(job(engine, memory_bytes=2**30))
    assert options(words, "--memory") == [] and options(words, "--pids-limit") == ["4096"]
    assert "no memory limit" in run_words.notes(job(engine))[0]


def test_selinux_gets_a_private_label_and_nvidia_none() -> None:
    enforcing = {"selinux_enforcing": True}
    volume = "/scratch/inductor-atlas-1000/run-x:/atlas"
    assert options(wrap(job(podman_info(), PLAIN.model_copy(update=enforcing))), "--volume") == [f"{volume}:Z"]
    assert options(wrap(job(docker_info(), PLAIN.model_copy(update=enforcing))), "--volume") == [volume]
    host = NVIDIA.model_copy(update={**enforcing, "cdi_specs": ("/etc/cdi/nvidia.yaml",)})
    words = wrap(job(podman_info(), host, backend="cuda"))
    assert options(words, "--volume") == [volume] and "label=disable" in options(words, "--security-opt")


def test_libraries_find_a_user_a_home_and_a_place_for_files() -> None:
    variables = dict(word.split("=", 1) for word in options(wrap(job(environment={"LC_ALL": "C.UTF-8"})), "--env"))
    assert variables["HOME"] == variables["TMPDIR"] == "/atlas/work"
    assert variables["USER"] == variables["LOGNAME"] == "atlas" and variables["LC_ALL"] == "C.UTF-8"
    # The direct launcher's sweep knows a live directory by this.
    assert variables["ATLAS_RUN_DIRECTORY"] == "/scratch/inductor-atlas-1000/run-x"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize(
    "field",
    [
        {"image": "--privileged"}, {"image": "a b"}, {"image": ""}, {"name": "-v"}, {"devices": ("--gpus",)},
        {"devices": ("0,1",)}, {"folder": "/a:/etc"}, {"folder": "-v"}, {"folder": "/a,b"}, {"folder": "/a\nb"},
        {"environment": {"-e": "x"}}, {"environment": {"A": "x\0y"}}, {"memory_bytes": -1}, {"pids": 0}, {"uid": -1},
    ],
    ids=str,
)  # fmt: skip
def test_nothing_that_a_file_says_becomes_an_option(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        job(**field)


# ------------------------------------------------------------------------------------- devices

CDI = {"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}


def discovered(*names: str) -> dict[str, Any]:
    return {**CDI, "DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={name}"} for name in names]}


@pytest.mark.parametrize(
    ("info", "devices", "words"),
    [
        ({}, (), ("--gpus", "all")),
        ({}, ("1",), ("--gpus", "device=1")),
        ({}, (MIG,), ("--gpus", f"device={MIG}")),
        ({}, ("0", "1"), ("--gpus", '"device=0,1"')),
        # CDI is on, and nothing of NVIDIA's was found there: the older way
        (discovered(), (), ("--gpus", "all")),
        (discovered("0", "1", "all"), (), ("--device", "nvidia.com/gpu=all")),
        (discovered("0", "1", "all"), ("0", "1"), ("--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1")),
        (discovered("all", MIG), (MIG,), ("--device", f"nvidia.com/gpu={MIG}")),
        (discovered("all", "0", "1:1"), (MIG,), ("--device", "nvidia.com/gpu=1:1")),
        (discovered("all", "0"), ("GPU-6b9a1c2d-0000-1111-2222-333344445555",), ("--device", "nvidia.com/gpu=0")),
    ],
    ids=str,
)
def test_docker_gets_nvidia_by_cdi_where_it_has_it(
    info: dict[str, Any], devices: tuple[str, ...], words: tuple[str, ...]
) -> None:
    made = wrap(job(docker_info(**info), NVIDIA, backend="cuda", devices=devices))
    before = made[: made.index("--user")]
    assert before[-len(words) :] == words


def test_docker_with_cdi_and_no_list_goes_by_the_specification_files() -> None:
    host = NVIDIA.model_copy(update={"cdi_specs": ("/var/run/cdi/nvidia.yaml",)})
    assert options(wrap(job(docker_info(**CDI), host, backend="cuda")), "--device") == ["nvidia.com/gpu=all"]
    assert options(wrap(job(docker_info(), host, backend="cuda")), "--gpus") == ["all"]


def test_podman_gets_nvidia_by_cdi_only() -> None:
    fault = blocked(wrap, job(podman_info(), NVIDIA, backend="cuda"))
    assert fault.reason == "nvidia_runtime" and "nvidia-ctk cdi generate" in str(fault.hint)
    host = NVIDIA.model_copy(update={"cdi_devices": facts.parse_cdi_list(CDI_LIST)})
    words = wrap(job(podman_info(), host, backend="cuda", devices=(MIG,)))
    assert options(words, "--device") == ["nvidia.com/gpu=1:1"]


def test_a_stale_specification_is_named() -> None:
    fault = blocked(wrap, job(docker_info(**discovered("all", "0")), NVIDIA, backend="cuda", devices=(MIG,)))
    assert fault.reason == "cdi_stale" and MIG in fault.message and "cdi generate" in str(fault.hint)


@pytest.mark.parametrize(
    ("host", "reason", "hint"),
    [
        (PLAIN, "device_missing", "nvidia-smi"),
        (PLAIN.model_copy(update={"nvidia_fault": "Failed to initialize NVML: Driver/library version mismatch\n"
                                                  "NVML library version: 580.65"}), "driver_mismatch", "reboot"),
        (PLAIN.model_copy(update={"nvidia_fault": "Failed to initialize NVML: Unknown Error"}), "device_lost",
         "docker"),
        (PLAIN.model_copy(update={"nvidia_fault": "NVIDIA-SMI has failed because it couldn't communicate with the "
                                                  "NVIDIA driver."}), "driver_missing", "modprobe"),
        (NVIDIA.model_copy(update={"nvidia_toolkit": False}), "nvidia_runtime", "nvidia-container-toolkit"),
    ],
    ids=["no driver", "mismatch", "lost", "not loaded", "no toolkit"],
)  # fmt: skip
def test_no_nvidia_says_which_part_is_missing(host: HostFacts, reason: str, hint: str) -> None:
    fault = blocked(wrap, job(docker_info(), host, backend="cuda"))
    assert fault.reason == reason and hint in str(fault.hint)


def test_a_device_that_the_host_has_not() -> None:
    assert blocked(wrap, job(host=NVIDIA, backend="cuda", devices=("7",))).reason == "device_missing"
    assert blocked(wrap, job(host=INTEL, backend="xpu", devices=("2",))).hint == "write an index from 0 to 1"
    assert blocked(wrap, job(host=INTEL, backend="xpu", devices=(MIG,))).reason == "device_missing"


def test_xpu_gets_the_render_nodes_and_the_hosts_group() -> None:
    words = wrap(job(host=INTEL, backend="xpu"))
    assert options(words, "--device") == ["/dev/dri"] and options(words, "--group-add") == ["993"]
    one = wrap(job(host=INTEL, backend="xpu", devices=("1",)))
    assert options(one, "--device") == ["/dev/dri/renderD129"]


def test_rocm_gets_kfd_and_both_groups() -> None:
    words = wrap(job(host=AMD, backend="rocm"))
    assert options(words, "--device") == ["/dev/kfd", "/dev/dri"] and options(words, "--group-add") == ["44", "109"]
    fault = blocked(wrap, job(host=INTEL, backend="rocm"))
    assert fault.reason == "device_missing" and "/dev/kfd" in fault.message


def test_files_open_to_all_need_no_group() -> None:
    host = PLAIN.model_copy(update={"device_files": (render("/dev/dri/renderD128", 0, mode="crw-rw-rw-"),)})
    for engine in (docker_info(), ROOTLESS_DOCKER, podman_info()):
        assert options(wrap(job(engine, host, backend="xpu")), "--group-add") == []


def test_a_rootless_engine_gives_only_what_its_user_has() -> None:
    fault = blocked(wrap, job(podman_info(), INTEL, backend="xpu"))
    assert fault.reason == "render_permission" and "usermod -aG render" in str(fault.hint)
    member = INTEL.model_copy(update={"groups": (1000, 993)})
    assert options(wrap(job(podman_info(), member, backend="xpu")), "--group-add") == ["keep-groups"]
    assert blocked(wrap, job(ROOTLESS_DOCKER, member, backend="xpu")).reason == "render_permission"
    listed = PLAIN.model_copy(update={"device_files": (render("/dev/dri/renderD128", 993, mode="crw-rw----+"),)})
    assert options(wrap(job(ROOTLESS_DOCKER, listed, backend="xpu")), "--group-add") == []


def test_a_render_node_of_root_alone_is_not_given_with_the_group_of_root() -> None:
    host = PLAIN.model_copy(update={"device_files": (render("/dev/dri/renderD128", 0),)})
    assert blocked(wrap, job(host=host, backend="xpu")).reason == "render_permission"


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_mps_is_never_in_a_container(engine: str) -> None:
    made = {"docker": docker_info(), "podman": podman_info(), "apptainer": facts.parse_apptainer("1.3.4\n")}[engine]
    assert blocked(wrap, job(made, backend="mps")).reason == "no_container"
    assert BACKENDS["mps"].refused


def test_apptainer_words() -> None:
    engine = facts.parse_apptainer("INFO: greetings\n1.3.4-1.el9\n")
    assert engine.version == "1.3.4-1.el9"

    def words(host: HostFacts, backend: str, devices: tuple[str, ...] = ()) -> tuple[str, ...]:
        return CONTAINERS["apptainer"](
            ("python3", "x"), job(engine, host, backend=backend, devices=devices, image="/images/atlas.sif")
        )

    made = words(NVIDIA, "cuda", ("0", "1"))
    assert made[:3] == ("apptainer", "exec", "--containall")
    assert {"--no-home", "--nv"} <= set(made) and made[-2:] == ("python3", "x")
    assert made[made.index("--bind") + 1] == "/scratch/inductor-atlas-1000/run-x:/atlas"
    inside = made[made.index("/images/atlas.sif") + 1 :]
    assert inside[0] == "env" and "CUDA_VISIBLE_DEVICES=0,1" in inside
    assert "TRITON_LIBCUDA_PATH=/.singularity.d/libs" in inside
    assert "--rocm" in words(AMD, "rocm") and "--nv" not in words(PLAIN, "cpu")
    xpu = words(INTEL, "xpu", ("1",))
    assert "/dev/dri" in xpu and "ZE_AFFINITY_MASK=1" in xpu
    assert blocked(words, PLAIN, "cuda").reason == "device_missing"
    assert blocked(words, PLAIN, "xpu").reason == "device_missing"
    assert "no limits" in run_words.notes(job(engine))[0]


# --------------------------------------------------------------------------------------- facts


def test_a_hosts_listing() -> None:
    host = facts.parse_host(HOST_LISTING)
    assert (host.system, host.machine, host.uid, host.groups) == ("Linux", "x86_64", 1000, (1000, 27, 992))
    assert [file.path for file in host.device_files][:2] == ["/dev/kfd", "/dev/dri/renderD128"]
    assert host.device_files[1].mode == "crw-rw----+" and host.device_files[3].mode == "crw-rw----"
    assert [node.path for node in host.render_nodes("0x8086")] == ["/dev/dri/renderD128"]
    assert host.cdi_specs == ("/etc/cdi/nvidia.yaml",) and host.nvidia_toolkit is True
    assert host.selinux_enforcing is True and host.amd_driver == "6.12.12"


def test_a_listing_that_was_cut_off_claims_nothing() -> None:
    host = facts.parse_host("ATLAS-HOST system=Linux\n")
    assert host.selinux_enforcing is None and host.nvidia_toolkit is None and host.uid is None


def test_nvidia_listings() -> None:
    gpus, driver = facts.parse_nvidia(SMI, SMI_QUERY)
    assert driver == "580.65.06" and [gpu.capability for gpu in gpus] == ["9.0", "8.0"]
    assert [(part.index, part.profile) for part in gpus[1].slices] == [(0, "3g.40gb"), (1, "2g.20gb")]
    old, unknown = facts.parse_nvidia(SMI, 'Field "compute_cap" is not a valid field to query.')
    assert unknown is None and old[0].capability is None


def test_docker_info() -> None:
    engine = docker_info()
    assert (engine.version, engine.client_version, engine.architecture) == ("20.10.24+dfsg1", "28.2.2", "amd64")
    assert not engine.rootless and engine.cdi_enabled is False and engine.cdi_devices is None
    assert ROOTLESS_DOCKER.rootless
    arm = docker_info(Architecture="aarch64", SecurityOptions=["name=selinux", "name=seccomp,profile=default"])
    assert arm.architecture == "arm64" and arm.selinux


def test_podman_info() -> None:
    engine = podman_info()
    assert (engine.version, engine.rootless, engine.selinux, engine.memory_limit) == ("4.3.1", True, True, True)
    assert podman_info(cgroupControllers=None).memory_limit is False
    assert ROOTFUL_PODMAN.memory_limit is True


def test_docker_info_without_a_daemon() -> None:
    said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    down = {"ServerVersion": None, "ServerErrors": [said]}
    assert blocked(lambda: docker_info(**down)).reason == "engine_down"


def test_podman_under_dockers_name() -> None:
    assert blocked(facts.parse_docker, json.dumps(PODMAN_INFO).encode()).hint == "runtime: podman"


class Answers:
    """A transport that answers every command alike."""

    def __init__(self, stdout: bytes, exit_code: int = 0, stderr: bytes = b"") -> None:
        self.reply = (exit_code, stdout, stderr)

    def run(self, argv: Any, *, timeout: float) -> Completed:
        return Completed(tuple(argv), *self.reply)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b'{"ServerVersion": 7}',
                                  b'{"ServerVersion": "' + b"9" * 999 + b'"}'])  # fmt: skip
def test_a_reply_that_is_none_costs_the_row_and_is_no_bug_of_ours(text: bytes) -> None:
    with pytest.raises((CommandFailed, Blocked)):
        facts.find_engine(Answers(text), "docker")  # type: ignore[arg-type]
    with pytest.raises(CommandFailed):
        facts.find_image(Answers(text), docker_info(), "x")  # type: ignore[arg-type]


def test_host_facts_out_of_bounds_cost_the_row() -> None:
    with pytest.raises(CommandFailed, match="facts"):
        facts.find_host(Answers(b"ATLAS-HOST uid=99999999999999\n"))  # type: ignore[arg-type]
    assert facts.find_host(Answers(b"hello")).unknown  # type: ignore[arg-type]


def test_images_of_a_registry_have_a_digest_and_others_none() -> None:
    image = {"Id": "sha256:ab", "RepoDigests": ["docker.io/x@sha256:cd"], "Architecture": "amd64", "Os": "linux",
             "Config": {"Labels": None}}  # fmt: skip
    assert facts.parse_image(json.dumps([image]).encode()).repo_digest == "docker.io/x@sha256:cd"
    for digests in ([], None, ["localhost/x@sha256:cd"]):
        assert facts.parse_image(json.dumps([{**image, "RepoDigests": digests}]).encode()).repo_digest is None
    with pytest.raises(WireError):
        facts.parse_image(b"[]")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-30T12:01:00.490500091Z", 1796040060.490500091),
        ("2026-11-30T13:01:00+01:00", 1796040060.0),
        ("2026-11-30 13:01:00.5 +0100 CET", 1796040060.5),
        ("0001-01-01T00:00:00Z", None), ("", None), (None, None), ("soon", None),
    ],
)  # fmt: skip
def test_an_engines_time(text: str | None, seconds: float | None) -> None:
    found = replies.moment(text)
    assert found == seconds or (found is not None and seconds is not None and abs(found - seconds) < 1e-3)


# ------------------------------------------------------------------------------------ backends


@pytest.mark.parametrize(
    ("host", "chosen"),
    [
        (PLAIN, ["cpu"]),
        (NVIDIA, ["cpu", "cuda"]),
        (AMD, ["cpu", "rocm"]),
        (INTEL, ["cpu", "xpu"]),
        (facts.parse_host(HOST_LISTING), ["cpu", "rocm", "xpu"]),
        (PLAIN.model_copy(update={"nvidia_fault": "Failed to initialize NVML"}), ["cpu", "cuda"]),
        # a server's display chip is nobody's accelerator
        (PLAIN.model_copy(update={"device_files": (render("/dev/dri/renderD128", 1, vendor="0x1a03"),)}), ["cpu"]),
    ],
    ids=["plain", "nvidia", "amd", "intel", "amd and intel", "broken nvidia", "display chip"],
)
def test_auto_takes_what_the_host_has(host: HostFacts, chosen: list[str]) -> None:
    choices = choose_backends(host)
    assert [choice.backend for choice in choices] == chosen and all(choice.why for choice in choices)


@pytest.mark.parametrize(
    ("driver", "capabilities", "build", "word"),
    [
        ("580.65.06", ("9.0", "8.0"), "cu130", "covers both"),
        ("550.54.15", ("9.0",), "cu126", "covers both"),
        ("580.65.06", ("7.0",), "cu126", "lowest capability 7.0"),
        ("580.65.06", ("7.0", "10.0"), "cu126", "lowest capability 7.0"),
        ("580.65.06", ("9.0", "10.0"), "cu130", "covers both"),
        ("550.54.15", ("12.0",), None, "580 or newer"),
        ("470.57.02", ("8.0",), None, "525 or newer"),
        ("580.65.06", ("3.5",), None, "no build"),
        (None, ("8.0",), "cu130", "unknown"),
        ("580.65.06", (), "cu130", "unknown"),
    ],
)
def test_the_cuda_build_covers_driver_and_lowest_capability(
    driver: str | None, capabilities: tuple[str, ...], build: str | None, word: str
) -> None:
    gpu = NVIDIA.nvidia_gpus[0]
    gpus = tuple(gpu.model_copy(update={"capability": capability}) for capability in capabilities or (None,))
    choice = choose_backends(NVIDIA.model_copy(update={"nvidia_gpus": gpus, "nvidia_driver": driver}))[1]
    assert choice.cuda_build == build and word in choice.why


# -------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
         "engine_down"),
        ("failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct",
         "engine_down"),
        (("permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "
         '"http://%2Fvar%2Frun%2Fdocker.sock/v1.50/info": dial unix /var/run/docker.sock: connect: permission denied'),
         "engine_permission"),
        ("permission denied while trying to connect to the docker API at unix:///var/run/docker.sock",
         "engine_permission"),
        ("docker: Error response from daemon: could not select device driver \"\" with capabilities: [[gpu]].",
         "nvidia_runtime"),
        (("docker: Error response from daemon: failed to create task for container: CDI device injection failed: "
         "unresolvable CDI devices nvidia.com/gpu=all"), "cdi_stale"),
        ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "cdi_stale"),
        ("error mounting \"/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05\" to rootfs: no such file or directory",
         "cdi_stale"),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.",
         "driver_mismatch"),
        (("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver to a "
         "newer version"), "driver_mismatch"),
        (("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
         "object file"), "driver_missing"),
        ("nvidia-container-cli: device error: 7: unknown device", "device_missing"),
        ("Failed to initialize NVML: Unknown Error", "device_lost"),
        ("Error response from daemon: No such image: localhost/inductor-atlas-cpu:2.13.0", "image_absent"),
        ("Error: localhost/inductor-atlas-cpu:2.13.0: image not known", "image_absent"),
        ("exec /bin/sh: exec format error", "image_arch"),
        (("docker: Error response from daemon: error gathering device information while adding custom device "
         "\"/dev/kfd\": no such file or directory."), "device_missing"),
        ("Error: stat /dev/dri: no such file or directory", "device_missing"),
        ("write /var/lib/docker/tmp/x: no space left on device", "disk_full"),
        ("Error: lsetxattr /scratch: operation not supported", "selinux_label"),
    ],
)  # fmt: skip
def test_an_engines_refusal_has_a_reason_and_a_command(text: str, reason: str) -> None:
    error = faults.refusal(Completed(("docker", "run"), 125, b"", text.encode()), image="x", backend="cpu")
    assert isinstance(error, Blocked) and error.reason == reason and error.hint


def test_an_unknown_refusal_is_repeated_without_the_advice_to_read_the_help() -> None:
    text = b"docker: Error response from daemon: strange things.\nSee 'docker run --help'.\n"
    error = faults.refusal(Completed(("docker", "run", "-d"), 125, b"", text))
    assert isinstance(error, CommandFailed) and error.message.endswith("strange things.")


@pytest.mark.parametrize("text", ["bash: line 1: docker: command not found", "docker: No such file or directory"])
def test_an_absent_engine(text: str) -> None:
    assert faults.refusal(Completed(("docker", "info"), 127, b"", text.encode())).reason == "engine_absent"
    inside = b'docker: Error response from daemon: OCI runtime create failed: exec: "/bin/sh": not found.'
    assert faults.refusal(Completed(("docker", "run"), 127, b"", inside)).reason == "engine_failed"


@pytest.mark.parametrize(
    ("backend", "engine", "host", "said", "reason"),
    [
        ("cuda", docker_info(), NVIDIA, "Error 804: forward compatibility was attempted on non supported HW",
         "driver_mismatch"),
        ("cuda", docker_info(), NVIDIA, ("Unexpected error from cudaGetDeviceCount(). Error 803: system has "
         "unsupported display driver / cuda driver combination"), "driver_mismatch"),
        ("cuda", docker_info(), NVIDIA, "NVML: Unknown Error", "device_lost"),
        ("cuda", docker_info(), NVIDIA, None, "nvidia_runtime"),
        ("cuda", podman_info(), NVIDIA, "the runtime found no device", "nvidia_runtime"),
        ("cuda", docker_info(), PLAIN, None, "device_missing"),
        ("xpu", docker_info(), INTEL, None, "render_permission"),
        ("xpu", docker_info(), PLAIN, None, "device_missing"),
        ("rocm", docker_info(), AMD, None, "render_permission"),
    ],
)  # fmt: skip
def test_a_container_without_its_device_is_blocked_with_the_likely_cause(
    backend: str, engine: EngineFacts, host: HostFacts, said: str | None, reason: str
) -> None:
    fault = faults.device_absent(backend, engine, host, said)  # type: ignore[arg-type]
    assert isinstance(fault, Blocked) and fault.reason == reason and fault.hint


# ------------------------------------------------------------------ what an engine says of an end


def container(deadline: int = 60, **state: Any) -> replies.Container:
    return replies.Container.model_validate({
        "Name": "/x", "Created": "2026-11-30T11:59:59Z",
        "Config": {"Labels": {"inductor-atlas.deadline": str(deadline)}},
        "State": {"Status": "exited", "ExitCode": 0, "OOMKilled": False, "StartedAt": "2026-11-30T12:00:00Z",
                  "FinishedAt": "2026-11-30T12:00:30Z", **state},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, None), ({"ExitCode": 1}, None), ({"ExitCode": 124}, "deadline"), ({"ExitCode": 137}, None),
        ({"ExitCode": 137, "OOMKilled": True}, "memory"), ({"ExitCode": 1, "OOMKilled": True}, None),
        ({"ExitCode": 137, "FinishedAt": "2026-11-30T12:01:10Z"}, "deadline"), ({"ExitCode": 127}, "not_started"),
    ],
    ids=str,
)  # fmt: skip
def test_why_a_container_ended(state: dict[str, Any], reason: str | None) -> None:
    assert _reason_of(container(**state)) == reason


@pytest.mark.parametrize(
    ("state", "minutes", "abandoned"),
    [
        ({"Status": "running", "FinishedAt": "0001-01-01T00:00:00Z"}, 2, False),
        ({"Status": "running", "FinishedAt": "0001-01-01T00:00:00Z"}, 4, True),
        ({}, 60, False), ({}, 25 * 60, True),
        ({"Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": ""}, 30, False),
        ({"Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": ""}, 90, True),
    ],
    ids=str,
)  # fmt: skip
def test_what_nobody_can_be_waiting_for(state: dict[str, Any], minutes: int, abandoned: bool) -> None:
    noon = replies.moment("2026-11-30T12:00:00Z")
    assert noon is not None
    assert _abandoned(container(**state), int(noon) + minutes * 60) is abandoned


@pytest.mark.parametrize(
    ("uid", "engine", "user"), [(0, docker_info(), (65532, 65532)), (1000, docker_info(), (1000, 1000)),
                                (0, ROOTFUL_PODMAN, (65532, 65532)), (1000, ROOTLESS_DOCKER, (1000, 1000))],
)  # fmt: skip
def test_root_of_the_host_is_never_the_user_inside(uid: int, engine: EngineFacts, user: tuple[int, int]) -> None:
    host = PLAIN.model_copy(update={"uid": uid, "gid": uid})
    launcher = EngineLauncher(ContainerSpec(image="x", backend="cpu"), engine, host, ImageState())
    assert launcher.user() == user
    assert launcher.name(Place("/tmp/r", "/tmp/r/run-a1", "python3", "")) == f"inductor-atlas-{uid}-run-a1"


def test_the_launchers_modules_name_the_user_as_recorded() -> None:
    assert docker.user(job(ROOTLESS_DOCKER)) == "0:0" and podman.user(job(podman_info())) == "1000:1000"
