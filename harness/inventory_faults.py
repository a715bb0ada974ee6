"""What pydantic found wrong with hosts.yaml -> sentences that say what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.records.hosts_file import GroupEntry, HostEntry, HostsFile
from harness.records.inventory import TargetSettings
from harness.strict_yaml import Document, Fault, Path, shown

_NAME = "a name of small letters, digits, '.', '_' and '-' that starts with a letter or digit"
_PATH = "a path without control characters"
_SECONDS = "a number of seconds"

# field -> what to write there
WRITE = {
    "defaults": "fields on indented lines",
    "groups": "a list of names such as [cuda, lab]",
    "hosts": "`hosts:` with a host's name and a colon on the next, indented line",
    "description": "one line of text",
    "targets": "a target's name and a colon, its fields on indented lines, or leave `targets` out",
    "transport": "local, ssh or fake",
    "address": 'a host name or address such as "lab1.example.org"',
    "user": 'a login name such as "lab"',
    "port": "a whole number from 1 to 65535",
    "key": 'the path of a private key file such as "~/.ssh/id_ed25519"',
    "jump": '[user@]address[:port], several separated by commas, such as "me@bastion:2222"',
    "host_key": "strict, accept-new or SHA256:<the fingerprint that ssh-keygen -l prints>",
    "python": f'{_PATH} such as "/opt/venv/bin/python"',
    "timeout": f"{_SECONDS} above 0, at most 86400",
    "connect_timeout": f"{_SECONDS} above 0, at most 600",
    "cell_timeout": f"{_SECONDS} above 0, at most 86400",
    "workdir": f'{_PATH} such as "/scratch/atlas"',
    "script": f"{_PATH} of a file of scripted replies",
    "runtime": "bare, docker, podman or apptainer",
    "enabled": "true or false",
    "backend": "one of cpu, cuda, rocm, xpu",
    "image": "an image's name such as localhost/inductor-atlas-cpu:2.13.0",
    "gpus": 'a list of indices or uuids in quotes such as ["0"]',
    "backends": "a list of cpu, cuda, rocm, xpu, mps such as [cpu, cuda]",
}
# What people write out of habit -> our word.
_HABITS = {
    "ansible_host": "address",
    "ansible_port": "port",
    "ansible_user": "user",
    "bastion": "jump",
    "host": "address",
    "hostname": "address",
    "identity_file": "key",
    "ip": "address",
    "key_filename": "key",
    "login": "user",
    "proxyjump": "jump",
    "python_interpreter": "python",
    "username": "user",
}
_SECRET = re.compile(r"pass(word|phrase|wd)?$|(^|_)(secret|token)$", re.IGNORECASE)
_VERSION = re.compile(r"(version|torch)$", re.IGNORECASE)


def faults(error: ValidationError, document: Document) -> list[Fault]:
    """One fault for each thing that pydantic refused, at its place in the file.

    A value that another fault names already is not named again, so that one mistake reads as one.
    """
    seen = {fault.path for fault in document.faults if fault.path}
    result: list[Fault] = []
    for detail in error.errors(include_url=False):
        fault = _fault(detail, document)
        # An unknown key is one mistake more, whatever else is wrong with it.
        if fault.path not in seen or detail["type"] == "extra_forbidden":
            seen.add(fault.path)
            result.append(fault)
    return result


def version_faults(document: Document) -> list[Fault]:
    """Versions that were written as numbers: 2.10 would be read as 2.1, whatever the field."""
    return [
        Fault(document.value_at(path), path, f"the version {text} is read as a number; {_quote(text)}")
        for path, text in document.numbers.items()
        if path and isinstance(path[-1], str) and _VERSION.search(path[-1])
    ]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be."""
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def label(path: Path) -> str:
    """A path as a fault names it: `lab1.targets.native.python`, `groups.cuda.port`, `lab1.jump[0]`."""
    if len(path) > 1 and path[0] == "hosts":
        path = path[1:]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)[1:-1]}" for part in path).lstrip(".")


def _fault(detail: ErrorDetails, document: Document) -> Fault:
    path: Path = tuple(detail["loc"])
    if path and path[-1] == "[key]":
        path = path[:-1]
        return Fault(document.key_at(path), path, f"{shown(path[-1])} cannot be a name; write {_NAME}")
    if detail["type"] == "extra_forbidden":
        return Fault(document.key_at(path), path, _unknown_key(path))
    if detail["type"] == "missing" or path == ("hosts",):
        return Fault(document.key_at(path), path, f"no host is named; write {WRITE['hosts']}")
    return Fault(document.value_at(path), path, f"{_wrong(detail, document, path)}; {_write(detail, document, path)}")


def _unknown_key(path: Path) -> str:
    word = str(path[-1])
    if _SECRET.search(word):
        return "a secret has no place in this file; remove it and load the key with ssh-add, or name its file in `key`"
    known = _fields(path[:-1])
    guess = _HABITS.get(word.lower().replace("-", "_"))
    if guess not in known:
        guess = nearest(word, known)
    remedy = f"did you mean {guess}?" if guess else f"write one of {', '.join(sorted(known))}"
    return f"unknown key {shown(word)}; {remedy}"


def _fields(path: Path) -> Mapping[str, object]:
    """The keys that may stand in the mapping at `path`."""
    model: type[BaseModel] = HostsFile
    if path:
        model = GroupEntry if path[0] == "groups" else HostEntry
        if "targets" in path:
            model = TargetSettings
    return model.model_fields


def _wrong(detail: ErrorDetails, document: Document, path: Path) -> str:
    value = detail["input"]
    written = document.numbers.get(path)
    if detail["type"] == "string_type" and written:
        return f"{written} is read as a number, not as text"
    if value is None:
        return "there is no value"
    if isinstance(value, dict):
        return "these are fields, not a value" if value else "{} is empty"
    if isinstance(value, list | tuple):
        return "this is a list"
    if isinstance(value, bool):
        return f"{str(value).lower()} is read as a truth value"
    if isinstance(value, str) and value.startswith("-"):
        return f'{shown(value)} starts with "-"'
    if isinstance(value, str) and detail["type"] in ("int_type", "float_type"):
        return f"{shown(value)} is text, not a number"
    return f"{written or shown(value)} cannot stand here"


def _write(detail: ErrorDetails, document: Document, path: Path) -> str:
    written = document.numbers.get(path)
    if detail["type"] == "string_type" and written:
        return _quote(written)
    if detail["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        guess = nearest(str(detail["input"]), allowed)
        return f"write {guess}" if guess else f"write {', '.join(allowed)}"
    # The names below hosts:, groups: and targets: are people's own, whatever field they sound like.
    if not path or (len(path) == 2 and path[0] in ("hosts", "groups")) or path[-2:-1] == ("targets",):
        return "write fields as `name: value` on indented lines"
    if path == ("groups",):
        return "write a group's name and a colon, its fields on indented lines"
    if path[-2:-1] == ("groups",):
        return f"write {_NAME}"
    field = next(str(part) for part in reversed(path) if isinstance(part, str))
    return f"write {WRITE.get(field, detail['msg'])}"


def _quote(text: str) -> str:
    return f'write "{text}", with the quotes'
