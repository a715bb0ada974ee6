"""Images, the pure part: the catalogue, what a build is given, what engines and self-tests answer."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import setup_env
import torch_choice

from harness import images
from harness.backends import CUDA_BUILDS
from harness.errors import Blocked, CommandFailed, DeadlineExceeded, UsageError, WireError
from harness.images import acts, recipe, remote, shipping
from harness.images.catalog import PROJECT, parse_catalog
from harness.records.images import BuildOptions, ImageSpec
from harness.transports.base import Completed

DIGEST = "sha256:" + "5" * 64
CPU = ImageSpec(
    name="cpu", backend="cpu", base="docker.io/library/python:3.11-slim-bookworm", torch="2.13.0",
    index="https://download.pytorch.org/whl/cpu",
)  # fmt: skip


# ---------------------------------------------------------------- the catalogue


def test_the_shipped_catalogue_serves_every_backend_with_the_tested_torch() -> None:
    catalog = images.load_catalog()
    assert {spec.backend for spec in catalog.images} == {"cpu", "cuda", "rocm", "xpu"}
    assert {spec.torch for spec in catalog.images} == {setup_env.wanted_torch()}
    public = {build["index"] for builds in torch_choice.load_builds().values() for build in builds}
    assert {spec.index for spec in catalog.images} <= public


def test_every_cuda_build_that_a_host_may_need_has_its_image() -> None:
    built = {spec.build for spec in images.load_catalog().images if spec.backend == "cuda"}
    assert built == {build.name for build in CUDA_BUILDS}


def test_a_reference_can_never_be_pulled_from_a_public_registry() -> None:
    assert {spec.reference.split("/")[0] for spec in images.load_catalog().images} == {"localhost"}
    assert CPU.reference == "localhost/inductor-atlas-cpu:2.13.0"


def test_a_base_is_pinned_by_its_digest_once_that_is_known() -> None:
    assert CPU.pinned_base == CPU.base
    assert CPU.model_copy(update={"digest": DIGEST}).pinned_base == f"{CPU.base}@{DIGEST}"


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ("    digest: sha256:abc", "12:13", "images.cpu.digest"),
        ("    digest: null\n    colour: red", "13:13", "images.cpu.colour"),
        ("    digest: null\n    digest: null", "13:5", "stands twice"),
        ("    backend: mps", "12:5", "stands twice"),
    ],
)
def test_a_fault_in_the_catalogue_is_told_with_its_place(line: str, place: str, words: str) -> None:
    text = (
        "# one\n# two\n# three\n\nsource: here\n\nimages:\n  cpu:\n    backend: cpu\n"
        f'    base: docker.io/library/python:3.11\n    torch: "2.13.0"\n{line}\n    index: https://mirror.example/cpu\n'
    )
    with pytest.raises(UsageError) as refused:
        parse_catalog(text)
    assert refused.value.message.startswith(f"docker/images.yaml:{place} ")
    assert words in refused.value.message


@pytest.mark.parametrize(
    "text", ["", "[]", "images: cpu", "source: x\nimages: {cpu: null}", "source: x\nimages: {cpu: 7}"]
)
def test_a_catalogue_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"docker/images\.yaml:[12]:"):
        parse_catalog(text)


def test_a_name_that_is_no_image_is_refused_and_mps_told_why() -> None:
    catalog = images.load_catalog()
    assert [spec.name for spec in images.select(catalog, ["xpu", "cpu"])] == ["xpu", "cpu"]
    assert images.select(catalog, []) == catalog.images
    with pytest.raises(UsageError) as refused:
        images.select(catalog, ["mps"])
    assert "macOS itself only" in str(refused.value.hint)


# ---------------------------------------------------------------- what a build is given


def test_the_same_sources_give_the_same_revision_and_others_another() -> None:
    files = recipe.context_files(PROJECT, CPU)
    assert recipe.revision(files) == recipe.revision(dict(reversed(files.items())))
    assert recipe.revision({**files, "probe_payload.py": b""}) != recipe.revision(files)


def test_what_the_site_says_goes_before_what_the_catalogue_says() -> None:
    options = BuildOptions(arguments={"TORCH_INDEX": "https://u:secret@mirror.example/whl/cpu/", "PIP_NO_INDEX": "1"})
    told = recipe.build_arguments(CPU, options, {}, "here")
    assert told["TORCH_INDEX"].startswith("https://u:secret@mirror.example")
    assert (told["TORCH_BUILD"], told["BASE"], told["PIP_NO_INDEX"], told["SOURCE"]) == ("cpu", CPU.base, "1", "here")
    assert recipe.build_arguments(CPU, options, {}, "here") == told


def test_an_unknown_build_argument_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        recipe.build_arguments(CPU, BuildOptions(arguments={"TORCH": "2"}), {}, "here")
    assert "TORCH_VERSION" in str(refused.value.hint)


def test_the_build_is_one_argv_and_no_word_of_it_can_become_an_option() -> None:
    argv = recipe.build_argv(("docker",), CPU, "/tmp/x", {"BASE": "--privileged"}, BuildOptions())
    assert argv == (
        "docker", "build", "--file", "/tmp/x/docker/cpu.Dockerfile", "--tag", CPU.reference,
        "--build-arg", "BASE=--privileged", "/tmp/x",
    )  # fmt: skip
    options = BuildOptions(network="host", no_cache=True)
    assert recipe.build_argv(("podman",), CPU, "/tmp/x", {}, options)[6:] == (
        "--network",
        "host",
        "--no-cache",
        "/tmp/x",
    )


def test_the_self_test_runs_without_network_root_capability_or_write_access() -> None:
    argv = recipe.selftest_argv(("docker",), CPU.reference, "a-name", flags=("--gpus", "all"), with_device=True)
    line = " ".join(argv)
    for words in (
        "--rm", "--pull never", "--name a-name", "--network none", "--read-only", "--cap-drop ALL",
        "--security-opt no-new-privileges",
    ):  # fmt: skip
        assert words in line
    assert "--privileged" not in argv
    assert argv[-6:] == ("all", "--entrypoint", "python", CPU.reference, recipe.SELFTEST, "--device")


# ---------------------------------------------------------------- what engines answer

DOCKER = {  # docker 20.10
    "Id": "sha256:" + "a" * 64, "RepoTags": ["localhost/inductor-atlas-cpu:2.13.0"], "RepoDigests": [],
    "Created": "2026-11-30T12:03:38.786914817Z", "DockerVersion": "20.10.24+dfsg1", "Architecture": "amd64",
    "Os": "linux", "Size": 1407302980,
    "Config": {"User": "10001:10001", "Env": ["HOME=/tmp"], "Labels": {"inductor-atlas.backend": "cpu"}},
}  # fmt: skip
PODMAN = {  # podman 4.3
    **DOCKER, "Id": "a" * 64, "RepoDigests": [f"localhost/inductor-atlas-cpu@{DIGEST}"], "User": "10001:10001",
}  # fmt: skip


def test_docker_and_podman_describe_the_same_image_alike() -> None:
    docker, podman = (acts.read_inspect(json.dumps([told]).encode(), CPU.reference) for told in (DOCKER, PODMAN))
    assert docker == podman
    assert (docker.id, docker.user, docker.repo_digest) == ("sha256:" + "a" * 64, "10001:10001", None)


def test_the_repo_digest_is_that_of_the_registry_that_was_asked_for() -> None:
    digests = [f"old.example/x/atlas@{DIGEST}", f"localhost/atlas@{DIGEST}", f"new.example:5000/x/atlas@{DIGEST}"]
    text = json.dumps([{**DOCKER, "RepoDigests": digests}]).encode()
    assert acts.read_inspect(text, "new.example:5000/x/atlas:1").repo_digest == digests[2]
    assert acts.read_inspect(text, "elsewhere/atlas:1").repo_digest == digests[0]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"Id": 1}', b'[{"Id": "x", "Config": 7}]'])
def test_a_description_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises((WireError, ValueError)):
        acts.read_inspect(text, CPU.reference)


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ("ERROR: No matching distribution found for torch==9.9.9", 1, "no_torch"),
        ("E: Unable to locate package libze-intel-gpu1", 100, "no_packages"),
        ("E: Failed to fetch http://mirror/x.deb  Connection refused", 100, "no_packages"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] ...", 1, "certificate"),
        ("Get https://registry-1.docker.io/v2/: dial tcp: lookup registry-1.docker.io: no such host", 1, "base_image"),
        ("ERROR: failed to solve: python:3.11: failed to resolve source metadata for docker.io/x", 1, "base_image"),
        ("Error response from daemon: manifest for python:0 not found: manifest unknown", 1, "base_image"),
        ("Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?", 1, "engine_down"),
        ("permission denied while trying to connect to the Docker daemon socket at unix:///x", 1, "engine_permission"),
        ("write /var/lib/docker/tmp/x: no space left on device", 1, "disk_full"),
        ("unauthorized: authentication required", 1, "registry_login"),
        ("sh: 1: exec: docker: not found", 127, "engine_absent"),
    ],
)  # fmt: skip
def test_a_failed_build_names_the_missing_piece_and_what_to_do(said: str, code: int, reason: str) -> None:
    log = "Step 1/31 : ARG BASE\n" + said
    error = remote.failure(Completed(("docker",), code, log.encode(), b""), "the image was not built")
    assert isinstance(error, Blocked)
    assert (error.reason, bool(error.hint)) == (reason, True)
    assert error.message.startswith("the image was not built: ")


def test_a_step_that_lacks_a_program_is_not_an_absent_engine() -> None:
    log = b"toolchain.sh: 34: apt-get: not found\nThe command '/bin/sh -c x' returned a non-zero code: 127"
    error = remote.failure(Completed(("docker",), 127, log, b""), "not built")
    assert isinstance(error, CommandFailed)
    assert "apt-get: not found" in error.message


def test_a_failed_build_of_unknown_kind_shows_its_last_lines() -> None:
    log = "\n".join(f"line {number}" for number in range(100))
    error = remote.failure(Completed(("docker",), 3, log.encode(), b""), "not built")
    assert isinstance(error, CommandFailed)
    assert "(exit 3)" in error.message
    assert "line 99" in error.message
    assert "line 50" not in error.message


# ---------------------------------------------------------------- the self-test


def _selftest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("selftest", PROJECT / "docker" / "selftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _records(*more: dict[str, Any], build: str = "cpu", triton: str | None = None) -> list[dict[str, Any]]:
    device = {"record": "device", "device": "cpu", "backend": "cpu", "status": "ok"}
    facts = {
        "record": "environment", "torch_version": "2.13.0", "torch_build": build, "triton_version": triton,
        "backends": [{"name": "cuda", "available": False, "reason": "no driver"}],
    }  # fmt: skip
    return [device, facts, *more]


def _cell(device: str, status: str = "generated", kind: str | None = "cpp", **more: str) -> dict[str, Any]:
    kinds = {kind: 1} if kind else {}
    return {"record": "cell", "device": device, "status": status, "kind": kind, "kinds": kinds, **more}


GPU = {"record": "device", "device": "cuda:0", "backend": "cuda", "status": "ok"}
ROCM = {**GPU, "backend": "rocm"}


@pytest.mark.parametrize(
    ("records", "backend", "with_device", "missing"),
    [
        (_records(_cell("cpu")), "cpu", False, None),
        ([], "cpu", False, "isolation"),
        (_records(_cell("cpu", "blocked", None, reason="no_cxx")), "cpu", False, "no_cxx"),
        (_records(_cell("cpu", "failed", None)), "cpu", False, "failed"),
        (_records(_cell("cpu", "wrong")), "cpu", False, "wrong"),
        (_records(_cell("cpu", kind="extern")), "cpu", False, "compile_error"),
        (_records(_cell("cpu")), "cuda", False, "torch_build"),
        (_records(_cell("cpu"), build="cuda"), "cuda", False, "triton_missing"),
        (_records(_cell("cpu"), build="cuda", triton="3.5"), "cuda", False, None),
        (_records(_cell("cpu"), build="cuda", triton="3.5"), "cuda", True, "device_missing"),
        (_records(_cell("cpu"), {**GPU, "status": "blocked", "reason": "driver_mismatch"}, build="cuda", triton="3.5"),
         "cuda", True, "driver_mismatch"),
        (_records(_cell("cpu"), GPU, _cell("cuda:0", kind="cpp"), build="cuda", triton="3.5"),
         "cuda", True, "compile_error"),
        (_records(_cell("cpu"), GPU, _cell("cuda:0", kind="triton"), build="cuda", triton="3.5"), "cuda", True, None),
        (_records(_cell("cpu"), ROCM, _cell("cuda:0", kind="triton"), build="rocm", triton="3.5"), "rocm", True, None),
    ],
)  # fmt: skip
def test_the_self_test_names_the_first_missing_piece(
    records: list[dict[str, Any]], backend: str, with_device: bool, missing: str | None
) -> None:
    answer = _selftest().verdict(records, backend, with_device, "")
    assert (answer["missing"], answer["ok"]) == (missing, missing is None)
    line = json.dumps(answer).encode()
    read = acts.read_selftest(Completed(("docker",), 0, b"a banner\n" + line + b"\n", b""), "x")
    assert read.missing == missing


@pytest.mark.parametrize(
    ("code", "stderr", "reason"),
    [
        (2, "python: can't open file '/opt/inductor-atlas/selftest.py': [Errno 2] No such file", "no_selftest"),
        (127, 'docker: Error: exec: "python": executable file not found in $PATH: unknown.', "no_python"),
        (125, 'docker: Error: could not select device driver "" with capabilities: [[gpu]].', "nvidia_runtime"),
    ],
)  # fmt: skip
def test_a_container_without_an_answer_says_why(code: int, stderr: str, reason: str) -> None:
    with pytest.raises(Blocked) as blocked:
        acts.read_selftest(Completed(("docker",), code, b"", stderr.encode()), CPU.reference)
    assert blocked.value.reason == reason


# ---------------------------------------------------------------- shipping


def _program(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "engine.py"
    path.write_text(text)
    return (sys.executable, str(path))


def test_a_saved_image_travels_compressed_in_bounded_pieces(tmp_path: Path) -> None:
    source = _program(
        tmp_path, "import os, sys\nassert sys.argv[1:] == ['save', 'x']\nos.write(1, os.urandom(300_000))\n"
    )
    pieces = list(shipping.saved(source, "x", time.monotonic() + 60, piece=100_000))
    assert [len(piece) for piece in pieces[:-1]] == [100_000] * (len(pieces) - 1)
    assert len(zlib.decompress(b"".join(pieces), 31)) == 300_000


def test_an_image_that_cannot_be_saved_is_an_error_and_no_short_archive(tmp_path: Path) -> None:
    source = _program(tmp_path, "import sys\nprint('half')\nsys.exit('Error: No such image: x')\n")
    with pytest.raises(Blocked) as blocked:
        list(shipping.saved(source, "x", time.monotonic() + 60))
    assert blocked.value.reason == "image_absent"
    with pytest.raises(Blocked) as absent:
        list(shipping.saved((str(tmp_path / "none"),), "x", time.monotonic() + 60))
    assert absent.value.reason == "engine_absent"


def test_a_save_that_hangs_is_killed_at_its_deadline(tmp_path: Path) -> None:
    source = _program(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(DeadlineExceeded):
        list(shipping.saved(source, "x", time.monotonic() + 0.5))
