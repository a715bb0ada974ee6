"""`atlas images`: build, list, verify and push container images, here or on a host of hosts.yaml.

A part of the command line, apart for its size; it prints, and reads nothing of the environment.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness import images, inventory
from harness.errors import UsageError
from harness.images.catalog import load_catalog, select
from harness.records.containers import ContainerJob, ContainerSpec, EngineName
from harness.records.images import BuildOptions, Catalog, ImageFacts, ImageSpec
from harness.records.inventory import Host
from harness.runtimes import facts
from harness.runtimes.devices import device_words
from harness.transports import connect
from harness.transports.base import Transport

HERE = Host(name="localhost", transport="local")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Words and options of the command."""
    parser.add_argument("act", choices=("build", "list", "verify", "push", "ship"), help="ship: bring an image of this "
                        "computer to a host without network")  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="IMAGE", help="names of docker/images.yaml; all if none")
    parser.add_argument("--on", metavar="HOST", help="a host of hosts.yaml (default: this computer)")
    parser.add_argument("--hosts", type=Path, metavar="FILE", help="the inventory (default: hosts.yaml)")
    parser.add_argument("--ssh-config", type=Path, metavar="FILE", help="read this in place of ~/.ssh/config")
    parser.add_argument("--engine", choices=("docker", "podman"), default="docker", help="(default: docker)")
    parser.add_argument(
        "--build-arg", action="append", default=[], metavar="K=V", help="a build argument, as a mirror's"
    )
    parser.add_argument(
        "--wheels",
        action="append",
        default=[],
        metavar="PATH",
        help="a wheel, or a folder of them, that travels to the build",
    )
    parser.add_argument("--host-wheels", metavar="DIR", help="a folder of wheels on the host itself")
    parser.add_argument(
        "--certificate", action="append", default=[], metavar="FILE", help="an authority to trust, NAME.crt"
    )
    parser.add_argument("--network", choices=("default", "host", "none"), default="default", help="of the build")
    parser.add_argument("--registry", metavar="R", help="where to push, as registry.example.org/team")
    parser.add_argument("--with-device", action="store_true", help="verify: run a kernel on the device too")


def run(arguments: argparse.Namespace) -> int:
    """Do the act for each image; raises what the acts raise."""
    catalog = load_catalog()
    chosen = select(catalog, arguments.names)
    if not arguments.names and arguments.act in ("build", "push", "ship"):
        names = ", ".join(spec.name for spec in catalog.images)
        raise UsageError(f"say which image to {arguments.act}", hint=f"there are: {names}")
    if arguments.act == "ship" and arguments.on is None:
        raise UsageError("say which host the image goes to", hint="--on HOST")
    transport = connect(_host(arguments), ssh_config=arguments.ssh_config)
    transport.open()
    try:
        done = [_act(arguments, transport, catalog, spec) for spec in chosen]
    finally:
        transport.close()
    if arguments.json:
        print(json.dumps(done, indent=1))
    return 0


def _host(arguments: argparse.Namespace) -> Host:
    if arguments.on is None:
        return HERE
    hosts = inventory.select(inventory.load(arguments.hosts), [arguments.on])
    if len(hosts) != 1:
        raise UsageError(f"--on {arguments.on} names {len(hosts)} hosts", hint="name one")
    return hosts[0]


def _act(arguments: argparse.Namespace, transport: Transport, catalog: Catalog, spec: ImageSpec) -> dict[str, object]:
    engine = (arguments.engine,)
    if arguments.act == "list":
        found = images.find(transport, engine, spec.reference)
    elif arguments.act == "build":
        found = images.build(transport, engine, spec, _options(arguments), source=catalog.source)
    elif arguments.act == "push":
        if not arguments.registry:
            raise UsageError("say where to push", hint="--registry registry.example.org/team")
        found = images.push(transport, engine, spec, arguments.registry)
    elif arguments.act == "ship":
        found = images.ship(engine, transport, engine, spec.reference)
    else:
        return _verify(arguments, transport, spec)
    if not arguments.json:
        print(f"{spec.name:8} {spec.reference}  {_described(found)}  base {spec.base}"
              f"{' ' + spec.digest if spec.digest else ' (not pinned)'}")  # fmt: skip
    return {"image": spec.model_dump(mode="json"), "found": found.model_dump(mode="json") if found else None}


def _described(found: ImageFacts | None) -> str:
    if found is None:
        return "absent"
    digest = found.repo_digest or "no repo digest"
    return f"{found.id[:19]} ({digest}), {found.architecture}, {(found.size_bytes or 0) / 1e6:.0f} MB"


def _options(arguments: argparse.Namespace) -> BuildOptions:
    pairs = [word.partition("=") for word in arguments.build_arg]
    if not all(key and equals for key, equals, _ in pairs):
        raise UsageError("--build-arg takes NAME=VALUE")
    return BuildOptions(
        arguments={key: value for key, _, value in pairs},
        wheels=tuple(wheel for path in map(Path, arguments.wheels) for wheel in _wheels(path)),
        host_wheels=arguments.host_wheels,
        certificates=tuple(arguments.certificate),
        network=arguments.network,
    )


def _wheels(path: Path) -> list[str]:
    found = sorted(map(str, path.glob("*.whl"))) if path.is_dir() else [str(path)]
    if not found:
        raise UsageError(f"--wheels {path}: there is no wheel in this folder")
    return found


def _device_flags(transport: Transport, engine: EngineName, wanted: ContainerSpec) -> tuple[str, ...]:
    """The words that give a container its device on this host; raises Blocked where it has none."""
    host = facts.find_host(transport)
    job = ContainerJob(
        **wanted.model_dump(), name="selftest", folder="/nowhere", uid=host.uid or 0, gid=host.gid or 0, deadline=1.0,
        engine=facts.find_engine(transport, engine), host=host,
    )  # fmt: skip
    return device_words(job)


def _verify(arguments: argparse.Namespace, transport: Transport, spec: ImageSpec) -> dict[str, object]:
    flags: tuple[str, ...] = ()
    if arguments.with_device and spec.backend != "cpu":
        wanted = ContainerSpec(image=spec.reference, backend=spec.backend)
        flags = _device_flags(transport, arguments.engine, wanted)
    answer = images.verify(transport, (arguments.engine,), spec.reference, flags=flags, with_device=bool(flags))
    if not arguments.json:
        cells = ", ".join(f"{cell.device}: {cell.kind or cell.status}" for cell in answer.cells)
        print(f"{spec.name:8} {spec.reference}  compiles ({cells}), torch {answer.torch}")
    return {"image": spec.model_dump(mode="json"), "selftest": answer.model_dump(mode="json")}
