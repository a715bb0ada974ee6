"""hosts.yaml -> Inventory: defaults and groups applied, everything checked, every fault at once.

    bytes -> text -> strict_yaml (types, duplicate keys) -> HostsFile (fields) -> names and groups -> Host

A host's own fields come first, then those of its groups in the order in which it names them, then
the defaults.  `targets` is one field: it is taken whole from the first of these that has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from harness import inventory_faults, strict_yaml
from harness.errors import InventoryError
from harness.patterns import select
from harness.records.hosts_file import GroupEntry, HostEntry, HostsFile
from harness.records.inventory import Group, Host, Inventory, Target, TargetSettings
from harness.strict_yaml import Document, Fault, Position, shown

__all__ = ["DEFAULT_PATH", "EMBEDDED", "SIZE_LIMIT", "load", "parse", "select"]

DEFAULT_PATH = Path("hosts.yaml")
SIZE_LIMIT = 1_000_000
# What there is to probe where nobody has written a hosts.yaml yet.
_CONTAINER = Target(name="docker", runtime="docker", backend="cpu", enabled=False)
EMBEDDED = Inventory(hosts=(Host(name="localhost", transport="local", targets=(Target(), _CONTAINER)),))


def load(path: Path | None = None) -> Inventory:
    """Read a hosts.yaml; without a path the one in the working directory, or `EMBEDDED` if there is none.

    Raises InventoryError with every fault of the file, sorted by line.
    """
    if path is None:
        path = DEFAULT_PATH
        if not path.exists() and not path.is_symlink():
            return EMBEDDED
    return parse(_read(path), source=str(path))


def parse(data: bytes, *, source: str = "hosts.yaml") -> Inventory:
    """Read the bytes of a hosts.yaml; `source` is the file name that its faults begin with.

    Raises InventoryError with every fault, sorted by line.
    """
    if len(data) > SIZE_LIMIT:
        raise _error(source, [Fault(Position(), (), f"larger than {SIZE_LIMIT} bytes; split it into several files")])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start)
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1)
        raise _error(
            source, [Fault(Position(line + 1, column + 1), (), "this is not UTF-8; save the file as UTF-8")]
        ) from error
    document = strict_yaml.load(text)
    if document.data is None:
        empty = Fault(Position(), (), f"the file is empty; write {inventory_faults.WRITE['hosts']}")
        raise _error(source, document.faults or [empty])
    document.faults += inventory_faults.version_faults(document)
    layout = _check(document)
    if layout is None or document.faults:
        raise _error(source, document.faults)
    return _apply(layout)


def _read(path: Path) -> bytes:
    """The file's bytes, at most one more than the limit; never waits for a pipe or a device."""
    source = str(path)
    try:
        if path.is_dir():
            raise _error(source, [Fault(Position(), (), "this is a directory; name the file in it")])
        if path.exists() and not path.is_file():
            raise _error(source, [Fault(Position(), (), "this is not a regular file; name one that is")])
        with path.open("rb") as stream:
            return stream.read(SIZE_LIMIT + 1)
    except FileNotFoundError as error:
        raise _error(source, [Fault(Position(), (), "there is no such file; check the path")]) from error
    except (OSError, ValueError) as error:
        # str(error) would repeat the path; ValueError is a NUL in it.
        reason = getattr(error, "strerror", None) or str(error)
        raise _error(source, [Fault(Position(), (), f"cannot be read ({reason}); check the path")]) from error


def _check(document: Document) -> HostsFile | None:
    """The file's layout, or None with the reasons added to the document's faults."""
    layout = None
    try:
        # JSON has lists where the records have tuples, so that strict types can be asked for.
        layout = HostsFile.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        document.faults += inventory_faults.faults(error, document)
    document.faults += _name_faults(document)
    return layout


def _name_faults(document: Document) -> list[Fault]:
    """What no single field can show: unknown groups, and names that mean two things.

    Reads the plain data, so that these are found also where another field is wrong.
    """
    result: list[Fault] = []
    data = document.data if isinstance(document.data, dict) else {}
    groups, hosts = _mapping(data.get("groups")), _mapping(data.get("hosts"))
    entries: dict[strict_yaml.Path, Any] = {("defaults",): data.get("defaults")}
    entries |= {("hosts", name): entry for name, entry in hosts.items()}
    for where, entry in entries.items():
        named = _mapping(entry).get("groups")
        for index, group in enumerate(named if isinstance(named, list) else ()):
            if isinstance(group, str) and group not in groups:
                path: strict_yaml.Path = (*where, "groups", index)
                guess = inventory_faults.nearest(group, groups)
                remedy = f"did you mean {guess}?" if guess else f"add `{shown(group)[1:-1]}:` under `groups:`"
                result.append(Fault(document.value_at(path), path, f"there is no group {shown(group)}; {remedy}"))
    for kind, names in (("groups", groups), ("hosts", hosts)):
        for name in names:
            path = (kind, name)
            if name == "all":
                result.append(Fault(document.key_at(path), path, '"all" means every host; choose another name'))
            elif kind == "hosts" and name in groups:
                result.append(
                    Fault(document.key_at(path), path, f"a group is called {shown(name)} too; rename one of them")
                )
    refused = {fault.path for fault in document.faults}
    return [fault for fault in result if fault.path not in refused]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _apply(layout: HostsFile) -> Inventory:
    """Hosts with their groups and the defaults applied."""
    groups = layout.groups or {}
    hosts = tuple(_host(name, entry or HostEntry(), layout) for name, entry in layout.hosts.items())
    return Inventory(
        hosts=hosts,
        groups=tuple(
            Group(
                name=name,
                description=entry.description if entry else None,
                hosts=tuple(host.name for host in hosts if name in host.groups),
            )
            for name, entry in groups.items()
        ),
    )


def _host(name: str, entry: HostEntry, layout: HostsFile) -> Host:
    defaults = layout.defaults or HostEntry()
    named = entry.groups if "groups" in entry.model_fields_set else defaults.groups
    groups = [(layout.groups or {})[group] or GroupEntry() for group in named]
    fields: dict[str, Any] = {}
    for layer in (defaults, *reversed(groups), entry):
        fields |= _written(layer)
    fields.pop("description", None)
    targets: Mapping[str, TargetSettings | None] = fields.pop("targets", {})
    if targets:
        fields["targets"] = tuple(
            Target(name=target, **_written(settings or TargetSettings())) for target, settings in targets.items()
        )
    return Host(**{**fields, "name": name, "groups": named})


def _written(model: BaseModel) -> dict[str, Any]:
    """The fields that the file set, defaults left out."""
    return {name: getattr(model, name) for name in model.model_fields_set}


def _error(source: str, faults: list[Fault]) -> InventoryError:
    lines = []
    for fault in sorted(faults, key=lambda fault: fault.position):
        what = inventory_faults.label(fault.path)
        place = f"{source}:{fault.position.line}:{fault.position.column}"
        lines.append(f"{place} {what}: {fault.message}" if what else f"{place} {fault.message}")
    return InventoryError(lines)
