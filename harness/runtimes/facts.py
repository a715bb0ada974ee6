"""What a host and its container engine are, found through any transport.

The host may have no python: facts come from the engine's own `info`, nvidia-smi and one fixed script
for /bin/sh.  Each fact stands alone; one that cannot be had is None, with its reason in `unknown`.
The parsers are pure.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pydantic import ValidationError

import probe_payload
from harness.errors import Blocked, CommandFailed, DeadlineExceeded, WireError
from harness.records.base import BackendName
from harness.records.containers import (
    DeviceFile,
    EngineFacts,
    EngineName,
    HostFacts,
    ImageState,
    MigSlice,
    NvidiaGpu,
)
from harness.runtimes import faults, replies
from harness.transports.base import Completed, Transport

MARK = "ATLAS-HOST "
FACT_TIMEOUT = 30.0  # seconds for one fact: a daemon or a driver that hangs costs no more

# Fixed text.  One line a fact, marked, so that a login banner cannot pass for one.
_HOST = f"""
say() {{ printf '{MARK}%s\\n' "$1"; }}
say "system=$(uname -s)"
say "machine=$(uname -m)"
say "uid=$(id -u)"
say "gid=$(id -g)"
say "groups=$(id -G)"
for path in /dev/kfd /dev/dri/renderD* /dev/dri/card* /dev/nvidia[0-9]* /dev/nvidia-uvm /dev/nvidiactl; do
  [ -e "$path" ] && say "file=$(ls -lnd "$path")"
done
for node in /sys/class/drm/renderD*; do
  [ -r "$node/device/vendor" ] && say "vendor=/dev/dri/${{node##*/}} $(cat "$node/device/vendor")"
done
for path in /etc/cdi/* /var/run/cdi/*; do [ -f "$path" ] && say "cdi=$path"; done
for program in nvidia-ctk nvidia-container-cli nvidia-container-runtime-hook; do
  command -v "$program" >/dev/null 2>&1 && say "toolkit=$program"
done
[ -r /sys/fs/selinux/enforce ] && say "selinux=$(cat /sys/fs/selinux/enforce)"
[ -r /sys/module/amdgpu/version ] && say "amd=$(cat /sys/module/amdgpu/version)"
say "end="
"""

# `uname -m` and the engines' own words -> the word that images carry
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386"}


def architecture(word: str | None) -> str | None:
    """A machine's architecture as images name it."""
    return _ARCHITECTURES.get(word, word) if word else None


def find_host(transport: Transport) -> HostFacts:
    """The host's facts: what is not there is a fact too.

    Raises CommandFailed where the host answers with something that is none, Unreachable.
    """
    with _checked("the host's facts"):
        return _find_host(transport)


def _find_host(transport: Transport) -> HostFacts:
    unknown: dict[str, str] = {}
    listing = _ask(transport, ("/bin/sh", "-c", _HOST), "device_files", unknown)
    text = listing.stdout.decode("utf-8", "replace") if listing else ""
    facts = parse_host(text)
    if facts.system is None:
        unknown.setdefault("device_files", "the host's shell printed no facts")
    names = _ask(transport, ("nvidia-ctk", "cdi", "list"), "cdi_devices", unknown) if facts.nvidia_toolkit else None
    found = names is not None and names.exit_code == 0
    return facts.model_copy(
        update={
            **_find_nvidia(transport, facts, unknown),
            "cdi_devices": parse_cdi_list(names.stdout.decode("utf-8", "replace")) if names and found else None,
            "unknown": unknown,
        }
    )


def parse_host(text: str) -> HostFacts:
    """The facts in the output of the host's script."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith(MARK):
            key, _, value = line[len(MARK) :].partition("=")
            values.setdefault(key, []).append(value.strip())
    vendors = dict(line.split(None, 1) for line in values.get("vendor", []) if " " in line)
    files = [parse_file(line, vendors) for line in values.get("file", [])]

    def one(key: str) -> str | None:
        return (values.get(key) or [""])[0] or None

    enforce = one("selinux")
    return HostFacts(
        system=one("system"), machine=one("machine"), uid=_number(one("uid")), gid=_number(one("gid")),
        groups=tuple(int(word) for word in (one("groups") or "").split() if word.isdigit()),
        device_files=tuple(file for file in files if file is not None),
        selinux_enforcing=None if "end" not in values else enforce == "1",
        cdi_specs=tuple(values.get("cdi", ())), amd_driver=one("amd"),
        nvidia_toolkit=None if "end" not in values else "toolkit" in values,
    )  # fmt: skip


def parse_file(line: str, vendors: dict[str, str]) -> DeviceFile | None:
    """One line of `ls -lnd`; None for what is not a device file."""
    found = re.match(r"(c[rwxstST-]{9}[.+@]?)\s+\d+\s+(\d+)\s+(\d+)\s.*\s(/dev/\S+)$", line)
    if found is None:
        return None
    mode, uid, gid, path = found.groups()
    return DeviceFile(path=path, mode=mode.rstrip(".@"), uid=int(uid), gid=int(gid), vendor=vendors.get(path))


def parse_cdi_list(text: str) -> tuple[str, ...]:
    """The device names in the output of `nvidia-ctk cdi list`."""
    return tuple(re.findall(r"^\s*([a-z0-9.-]+/[a-z]+=\S+)\s*$", text, re.MULTILINE))


def _find_nvidia(transport: Transport, facts: HostFacts, unknown: dict[str, str]) -> dict[str, object]:
    listed = _ask(transport, ("nvidia-smi", "-L"), "nvidia_gpus", unknown)
    if listed is None:
        hung = unknown.get("nvidia_gpus")
        return {"nvidia_fault": hung} if facts.files("/dev/nvidia") else {}
    text = listed.stdout.decode("utf-8", "replace")
    if listed.exit_code in (126, 127) and not facts.files("/dev/nvidia"):
        return {}
    if listed.exit_code != 0:
        said = text.strip() or listed.stderr.decode("utf-8", "replace").strip()
        return {"nvidia_fault": said[:2000] or f"nvidia-smi ended with {listed.exit_code}"}
    query = ("nvidia-smi", "--query-gpu=index,driver_version,compute_cap", "--format=csv,noheader")
    more = _ask(transport, query, "nvidia_driver", unknown)
    if more is not None and more.exit_code != 0:
        unknown["nvidia_driver"] = faults.last_line(more.stdout.decode("utf-8", "replace"))
    gpus, driver = parse_nvidia(text, more.stdout.decode("utf-8", "replace") if more else "")
    fault = None if gpus else f"nvidia-smi -L lists no GPU: {faults.last_line(text)}"
    return {"nvidia_gpus": gpus, "nvidia_driver": driver, "nvidia_fault": fault}


def parse_nvidia(listing: str, query: str) -> tuple[tuple[NvidiaGpu, ...], str | None]:
    """GPUs and driver from `nvidia-smi -L` and the query for index, driver and capability."""
    rows = [[part.strip() for part in line.split(",")] for line in query.splitlines()]
    known = {int(row[0]): row for row in rows if len(row) == 3 and row[0].isdigit()}
    entries = probe_payload.read_nvidia_list(listing)
    gpus = []
    for index, entry in enumerate(entry for entry in entries if not entry["mig_parent"]):
        parts = [part for part in entries if part["mig_parent"] == entry["uuid"]]
        capability = known[index][2] if index in known and re.fullmatch(r"\d{1,2}\.\d", known[index][2]) else None
        slices = tuple(
            MigSlice(index=number, uuid=part["uuid"], profile=part["mig_slice"]) for number, part in enumerate(parts)
        )
        gpus.append(
            NvidiaGpu(index=index, name=entry["name"], uuid=entry["uuid"], capability=capability, slices=slices)
        )
    return tuple(gpus), next((row[1] for row in known.values()), None)


def find_engine(transport: Transport, engine: EngineName) -> EngineFacts:
    """What the engine says of itself.

    Raises Blocked where it is absent, its daemon is down, hangs or refuses this user, with the command that
    mends it; CommandFailed for a refusal that nobody has seen yet.
    """
    if engine == "apptainer":
        argv: tuple[str, ...] = ("apptainer", "version")
    else:
        argv = (engine, "info", "--format", "{{json .}}" if engine == "docker" else "json")
    try:
        done = transport.run(argv, timeout=FACT_TIMEOUT)
    except DeadlineExceeded:
        raise Blocked(f"{engine} did not answer `{' '.join(argv[:2])}` within {FACT_TIMEOUT:.0f} s",
                      reason="engine_down", hint=f"sudo systemctl restart {engine}") from None  # fmt: skip
    if done.exit_code != 0:
        raise faults.refusal(done)
    with _checked(" ".join(argv)):
        if engine == "docker":
            return parse_docker(done.stdout)
        if engine == "podman":
            return parse_podman(done.stdout)
        return parse_apptainer(done.stdout.decode("utf-8", "replace"))


def parse_docker(text: bytes) -> EngineFacts:
    """The facts in `docker info --format '{{json .}}'`; raises Blocked where it says that its daemon is away."""
    info = replies.read(replies.DockerInfo, text)
    if info.host is not None:
        raise Blocked("docker on this host is podman under another name", reason="engine_setup", hint="runtime: podman")
    if info.server_version is None or info.server_errors:
        said = "; ".join(info.server_errors or ()) or "cannot connect to the docker daemon"
        raise faults.fault_of(said) or Blocked(f"docker info: {said}", reason="engine_down",
                                               hint="sudo systemctl start docker")  # fmt: skip
    options = tuple(info.security_options or ())
    names = {word.removeprefix("name=") for option in options for word in option.split(",")}
    discovered = info.discovered_devices
    return EngineFacts(
        engine="docker", version=info.server_version, architecture=architecture(info.architecture),
        client_version=info.client_info.version if info.client_info else None, system=info.os_type,
        rootless="rootless" in names, userns_remap="userns" in names, selinux="selinux" in names,
        cgroup_version=info.cgroup_version, memory_bytes=info.mem_total,
        memory_limit=info.memory_limit is not False, pids_limit=info.pids_limit is not False,
        runtimes=tuple(sorted(info.runtimes or {})), cdi_enabled=bool(info.cdi_spec_dirs),
        cdi_devices=None if discovered is None else tuple(found.id for found in discovered if found.source == "cdi"),
        security_options=options,
    )  # fmt: skip


def parse_podman(text: bytes) -> EngineFacts:
    """The facts in `podman info --format json`."""
    info = replies.read(replies.PodmanInfo, text)
    host = info.host
    controllers = host.cgroup_controllers or []
    # Without root, limits need cgroups v2 with the controller handed down to the user.
    limits = {word: not host.security.rootless or word in controllers for word in ("memory", "pids")}
    return EngineFacts(
        engine="podman", version=info.version.version or "unknown", architecture=architecture(host.arch),
        system=host.os, rootless=host.security.rootless, selinux=host.security.selinux_enabled,
        cgroup_version=(host.cgroup_version or "").removeprefix("v") or None, memory_bytes=host.mem_total,
        memory_limit=limits["memory"], pids_limit=limits["pids"], runtimes=(host.oci_runtime.name,), cdi_enabled=True,
    )  # fmt: skip


def parse_apptainer(text: str) -> EngineFacts:
    """The facts in `apptainer version`: a version is all that it says."""
    version = text.strip().splitlines()[-1] if text.strip() else "unknown"
    return EngineFacts(engine="apptainer", version=version, rootless=True, memory_limit=False, pids_limit=False)


def find_image(transport: Transport, facts: EngineFacts, image: str, backend: BackendName | None = None) -> ImageState:
    """The image as this engine has it.

    Raises Blocked where it is absent, or made for another architecture than the engine's machine
    (compared here, since emulation would start it and show another CPU's code).
    """
    if facts.engine == "apptainer":
        return _find_file(transport, image, backend)
    done = transport.run((facts.engine, "image", "inspect", image), timeout=FACT_TIMEOUT)
    if done.exit_code != 0:
        raise faults.refusal(done, image=image, backend=backend)
    with _checked(f"{facts.engine} image inspect"):
        state = parse_image(done.stdout)
    if facts.architecture and state.architecture and facts.architecture != state.architecture:
        raise Blocked(
            f"the image {image} is made for {state.architecture}, this host runs {facts.architecture}",
            reason="image_arch", hint=faults.build_image(backend),
        )  # fmt: skip
    return state


def parse_image(text: bytes) -> ImageState:
    """The first image in the reply of `image inspect`."""
    found = replies.read_list(replies.Image, text)
    if not found:
        raise WireError("the reply is an empty list")
    config = found[0].config
    # podman makes up a digest of `localhost/` for what it built itself.
    digests = [digest for digest in found[0].repo_digests or () if not digest.startswith("localhost/")]
    return ImageState(
        id=found[0].id, repo_digest=next(iter(digests), None),
        architecture=architecture(found[0].architecture), system=found[0].os,
        labels=(config.labels if config else None) or {},
    )  # fmt: skip


def _find_file(transport: Transport, image: str, backend: BackendName | None) -> ImageState:
    if not image.startswith("/"):
        raise Blocked(f"apptainer runs a file, and {image!r} is no absolute path", reason="image_absent",
                      hint=f"apptainer build /path/{backend or 'image'}.sif docker-archive:image.tar")  # fmt: skip
    done = transport.run(("ls", "-lnd", image), timeout=FACT_TIMEOUT)
    if done.exit_code != 0:
        raise Blocked(f"the image {image} is not on this host", reason="image_absent",
                      hint=f"apptainer build {image} docker-archive:image.tar")  # fmt: skip
    return ImageState()


@contextlib.contextmanager
def _checked(what: str) -> Iterator[None]:
    """A host is a stranger: a reply out of bounds costs its row, and is no fault of ours."""
    try:
        yield
    except (WireError, ValidationError) as error:
        said = error.message if isinstance(error, WireError) else error.errors()[0]["msg"]
        raise CommandFailed(f"`{what}`: {said}", reason="engine_failed") from error


def _ask(transport: Transport, argv: tuple[str, ...], fact: str, unknown: dict[str, str]) -> Completed | None:
    try:
        return transport.run(argv, timeout=FACT_TIMEOUT)
    except DeadlineExceeded:
        unknown[fact] = f"`{' '.join(argv[:2])[:60]}` did not end within {FACT_TIMEOUT:.0f} s"
        return None


def _number(text: str | None) -> int | None:
    with contextlib.suppress(ValueError):
        return int(text or "")
    return None
