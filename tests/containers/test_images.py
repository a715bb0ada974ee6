"""Images on real engines: built, found, verified, refused, pushed and shipped."""

from __future__ import annotations

import json
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import update_images

from harness import images
from harness.errors import Blocked, DeadlineExceeded
from harness.fleet import Fleet, find_sshd
from harness.images import recipe
from harness.images.catalog import PROJECT
from harness.records.images import BuildOptions, ImageFacts, ImageSpec
from harness.transports import Transport, connect
from tests.containers.engine import STAND_IN, Engine, import_stand_in

# The first test that wants the image builds it, on two busy cores.
pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]


def derive(engine: Engine, folder: Path, name: str, *lines: str) -> str:
    """An image made from ours by a few Dockerfile lines."""
    (folder / "Dockerfile").write_text("\n".join(lines))
    engine.run("build", "--quiet", "--network", "none", "--tag", name, str(folder), seconds=300)
    return name


def test_the_image_says_what_it_is_and_is_nobody_in_particular(cpu_image: ImageFacts, cpu_spec: ImageSpec) -> None:
    assert cpu_image.id.startswith("sha256:")
    assert cpu_image.repo_digest is None
    assert cpu_image.user == "10001:10001"
    assert cpu_image.system == "linux"
    revision = recipe.revision(recipe.context_files(PROJECT, cpu_spec))
    assert (
        cpu_image.labels.items()
        >= {
            "org.opencontainers.image.version": "0.1.0",
            "org.opencontainers.image.source": "a test",
            "org.opencontainers.image.revision": revision,
            "org.opencontainers.image.base.name": cpu_spec.base,
            "inductor-atlas.backend": "cpu",
            "inductor-atlas.torch": cpu_spec.torch,
            "inductor-atlas.build": "cpu",
        }.items()
    )


def test_the_image_holds_no_wheel_no_pip_and_no_index_address(docker_engine: Engine, cpu_image: ImageFacts) -> None:
    history = docker_engine.run("history", "--no-trunc", "--format", "{{.CreatedBy}}", cpu_image.reference)
    assert "PIP_" not in history
    assert "TORCH_INDEX" not in history
    found = docker_engine.run(
        "run", "--rm", "--network", "none", "--entrypoint", "sh", cpu_image.reference, "-c",
        "find / -xdev -name 'torch-*.whl' 2>/dev/null; ls /opt/venv/bin /var/lib/apt/lists; id -u",
    ).split()  # fmt: skip
    assert "python" in found
    assert found[-1] == "10001"
    assert not [name for name in found if name.endswith(".whl") or name.startswith("pip")]


def test_the_self_test_compiles_and_leaves_nothing(
    docker_engine: Engine, here: Transport, cpu_image: ImageFacts
) -> None:
    answer = images.verify(here, docker_engine.argv, cpu_image.reference)
    assert answer.ok
    assert answer.device_checked
    assert answer.torch is not None
    assert [(cell.device, cell.status, cell.kind) for cell in answer.cells] == [("cpu", "generated", "cpp")]
    assert docker_engine.containers() == []


def test_survey_shows_what_is_there_and_what_is_not(
    docker_engine: Engine, here: Transport, cpu_image: ImageFacts
) -> None:
    found = {spec.name: facts for spec, facts in images.survey(here, docker_engine.argv, images.load_catalog().images)}
    assert found["cpu"] == cpu_image
    assert found["cuda"] is None


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("no_cxx", "rm -f /usr/bin/*g++* /usr/bin/c++*"),
        ("no_openssl", "rm -f /usr/bin/openssl"),
        ("no_python_headers", "find / -xdev -name Python.h -delete"),
        ("no_torch", "rm -rf /opt/venv/lib/python3*/site-packages/torch"),
    ],
)
def test_an_image_that_cannot_compile_is_refused_with_the_missing_piece(
    missing: str, command: str, docker_engine: Engine, here: Transport, cpu_image: ImageFacts, tmp_path: Path
) -> None:
    lines = (f"FROM {cpu_image.reference}", "USER root", f"RUN {command}", "USER 10001")
    name = derive(docker_engine, tmp_path, f"localhost/test-{missing}:1", *lines)
    with pytest.raises(Blocked, match=missing) as refused:
        images.verify(here, docker_engine.argv, name)
    assert refused.value.reason == missing


def test_a_gpu_image_without_its_gpu_is_refused_and_never_passes_as_cpu(
    docker_engine: Engine, here: Transport, cpu_image: ImageFacts, tmp_path: Path
) -> None:
    name = derive(
        docker_engine, tmp_path, "localhost/test-cuda:1", f"FROM {cpu_image.reference}", "ENV ATLAS_BACKEND=cuda"
    )
    with pytest.raises(Blocked) as refused:
        images.verify(here, docker_engine.argv, name, with_device=True)
    assert refused.value.reason == "torch_build"


def test_an_image_of_another_architecture_never_starts(docker_engine: Engine, here: Transport, tmp_path: Path) -> None:
    other = "localhost/test-arch:1"
    mips = tmp_path / "image"
    _write_image_of(mips, other, "mips64le")
    with subprocess.Popen(["tar", "-C", str(mips), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run([*docker_engine.argv, "load"], stdin=packed.stdout, check=True, capture_output=True, timeout=60)
    with pytest.raises(Blocked, match="is for mips64le") as refused:
        images.verify(here, docker_engine.argv, other)
    assert refused.value.reason == "image_arch"
    assert docker_engine.containers() == []


def _write_image_of(folder: Path, reference: str, architecture: str) -> None:
    """What `docker save` writes for an image of one empty layer."""
    layer = folder / "layer"
    layer.mkdir(parents=True)
    subprocess.run(["tar", "-cf", str(layer / "layer.tar"), "--files-from", "/dev/null"], check=True, timeout=30)
    digest = subprocess.run(["sha256sum", layer / "layer.tar"], check=True, capture_output=True, text=True).stdout[:64]
    config = {
        "architecture": architecture, "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer/layer.tar"]}]
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_an_absent_image_and_one_that_is_not_ours(docker_engine: Engine, here: Transport) -> None:
    with pytest.raises(Blocked) as absent:
        images.verify(here, docker_engine.argv, "localhost/inductor-atlas-none:1")
    assert absent.value.reason == "image_absent"
    assert "atlas images build" in str(absent.value.hint)
    with pytest.raises(Blocked) as foreign:
        images.verify(here, docker_engine.argv, STAND_IN)
    assert foreign.value.reason == "no_selftest"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"PIP_NO_INDEX": "1", "TORCH_VERSION": "9.9.9"}, "no_torch"),
        ({"BASE": "127.0.0.1:9/nobody/there:1"}, "base_image"),
        # Not the layer of the cache: another mirror is another build.
        ({"APT_MIRROR": "http://127.0.0.1:9"}, "no_packages"),
    ],
)
def test_a_build_that_lacks_a_piece_says_which_and_cleans_up(
    arguments: dict[str, str], reason: str, docker_engine: Engine, here: Transport, cpu_spec: ImageSpec,
    cpu_image: ImageFacts, tmp_path: Path,
) -> None:  # fmt: skip
    options = BuildOptions(arguments=arguments, network="host", workdir=str(tmp_path))
    with pytest.raises(Blocked) as blocked:
        images.build(here, docker_engine.argv, cpu_spec, options, source="a test")
    assert blocked.value.reason == reason
    assert blocked.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_takes_too_long_ends_there_and_cleans_up(
    docker_engine: Engine, here: Transport, cpu_spec: ImageSpec, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # a mirror that takes every call and never answers
        mirror = f"http://127.0.0.1:{mute.getsockname()[1]}"
        options = BuildOptions(arguments={"APT_MIRROR": mirror}, network="host", workdir=str(tmp_path))
        with pytest.raises(DeadlineExceeded):
            images.build(here, docker_engine.argv, cpu_spec, options, source="a test", timeout=3)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Transport]:
    """A machine behind ssh."""
    if find_sshd() is None:
        pytest.skip("sshd is not installed: make system-deps")
    with Fleet(tmp_path / "fleet") as fleet:
        fleet.add("lab")
        transport = connect(fleet.hosts()[0], ssh_config=fleet.ssh_config)
        transport.open()
        yield transport
        transport.close()


def test_a_host_builds_from_its_own_wheel_folder_over_ssh(
    host: Transport, docker_engine: Engine, cpu_spec: ImageSpec, cpu_image: ImageFacts, offline: BuildOptions,
    tmp_path: Path,
) -> None:  # fmt: skip
    work = tmp_path / "work"
    work.mkdir()
    options = BuildOptions(
        arguments=offline.arguments, host_wheels=str(Path(offline.wheels[0]).parent), network="host", workdir=str(work)
    )
    built = images.build(host, docker_engine.argv, cpu_spec, options, source="a test")
    assert built.id == cpu_image.id  # the same context, the same image
    assert list(work.iterdir()) == []


def test_an_image_is_shipped_to_an_engine_without_network_and_works_there(
    host: Transport, docker_engine: Engine, podman_engine: Engine, cpu_image: ImageFacts
) -> None:
    shipped = images.ship(docker_engine.argv, host, podman_engine.argv, cpu_image.reference)
    assert (shipped.id, shipped.labels, shipped.user) == (cpu_image.id, cpu_image.labels, cpu_image.user)
    assert images.verify(host, podman_engine.argv, cpu_image.reference).ok


def test_podman_builds_the_same_dockerfile(
    podman_engine: Engine, here: Transport, cpu_spec: ImageSpec, tmp_path: Path
) -> None:
    """All stages for real, but for torch: docker's image has that already, and it takes a minute."""
    import_stand_in(podman_engine)
    spec = cpu_spec.model_copy(update={"name": "stub"})
    options = BuildOptions(
        wheels=(str(_stub_of_torch(tmp_path, spec.torch)),), arguments={"PIP_NO_INDEX": "1"}, network="host"
    )
    built = images.build(here, podman_engine.argv, spec, options, source="a test", timeout=900)
    assert built.user == "10001:10001"
    assert built.labels["inductor-atlas.torch"] == spec.torch
    with pytest.raises(Blocked, match="torch") as refused:
        images.verify(here, podman_engine.argv, built.reference)
    assert refused.value.reason == "torch_import"
    assert podman_engine.containers() == []


@pytest.mark.parametrize("name", ["cuda", "cuda12", "rocm"])
def test_the_gpu_dockerfiles_build_but_for_their_torch(
    name: str, docker_engine: Engine, here: Transport, cpu_image: ImageFacts, tmp_path: Path
) -> None:
    """Not under their own name: what is built here must never be taken for the real one."""
    spec = images.select(images.load_catalog(), [name])[0]
    stub = spec.model_copy(update={"name": f"stub-{name}"})
    wheel = str(_stub_of_torch(tmp_path, spec.torch))
    options = BuildOptions(wheels=(wheel,), arguments={"PIP_NO_INDEX": "1"}, network="host")
    built = images.build(here, docker_engine.argv, stub, options, source="a test")
    assert built.user == "10001:10001"
    assert (built.labels["inductor-atlas.backend"], built.labels["inductor-atlas.build"]) == (spec.backend, spec.build)


def _stub_of_torch(folder: Path, version: str) -> Path:
    """A wheel that pip installs as torch and that fails when it is imported."""
    wheel = folder / f"torch-{version}-py3-none-any.whl"
    about = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": "raise ImportError('a stub of torch')",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def test_a_pushed_image_has_a_repo_digest(
    docker_engine: Engine, here: Transport, registry: str, cpu_spec: ImageSpec, tmp_path: Path
) -> None:
    small = cpu_spec.model_copy(update={"name": "small"})
    (tmp_path / "file").write_text("x")
    derive(docker_engine, tmp_path, small.reference, "FROM scratch", "COPY file /")
    pushed = images.push(here, docker_engine.argv, small, f"{registry}/team")
    assert pushed.repo_digest is not None
    repository, _, digest = pushed.repo_digest.partition("@")
    assert repository == f"{registry}/team/inductor-atlas-small"
    # What `make update-images` writes is what an engine would pull.
    assert update_images.ask(update_images.parse_base(f"{repository}:{small.torch}")) == digest
