"""Ask each base image's registry for the digest of its tag and write it into docker/images.yaml.

    update_images.py [FILE]

A registry that does not answer leaves its digest as it is; what has none is "not pinned".  Standard
library only, through the proxy that the environment names.  Exit codes: 0 every image is pinned to what
its registry says now, 1 not all, 2 the file cannot be used.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).resolve().parent.parent / "docker" / "images.yaml"
SECONDS = 20.0
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# An index over architectures where there is one: one digest then serves them all.
_MANIFESTS = ", ".join((
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
))  # fmt: skip
# Each image is a block of lines; only the digest's own is ever changed, so that comments stay.
_IMAGE = re.compile(r"^  (?P<name>[a-z0-9][a-z0-9._-]*):\s*$")
_FIELD = re.compile(r"^    (?P<key>base|digest): *(?P<value>\S+)\s*$")


class Base(NamedTuple):
    """A base image by its registry, repository and tag."""

    registry: str
    repository: str
    tag: str


class NoAnswer(Exception):
    """The registry gave no digest; the text says why."""


Ask = Callable[[Base], str]


def parse_base(reference: str) -> Base:
    """The parts of a full reference such as docker.io/library/python:3.11-slim-bookworm."""
    registry, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    if not repository or not tag:
        raise ValueError(f"{reference!r} must be REGISTRY/REPOSITORY:TAG")
    # Docker's registry answers under another name than the one that images bear.
    return Base("registry-1.docker.io" if registry == "docker.io" else registry, repository, tag)


def ask(base: Base) -> str:
    """The digest of a tag as its registry tells it now; raises NoAnswer."""
    # Loopback registries speak plain http, as engines assume too.
    scheme = "http" if re.match(r"(localhost|127\.[0-9.]+)(:|$)", base.registry) else "https"
    address = f"{scheme}://{base.registry}/v2/{base.repository}/manifests/{base.tag}"
    headers = {"Accept": _MANIFESTS}
    try:
        try:
            answer = _head(address, headers)
        except urllib.error.HTTPError as refused:
            if refused.code != 401:
                raise
            challenge = refused.headers.get("WWW-Authenticate") or ""
            answer = _head(address, {**headers, "Authorization": f"Bearer {_token(challenge)}"})
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(str(getattr(error, "reason", None) or error)) from error
    digest = answer.get("Docker-Content-Digest", "")
    if not DIGEST.fullmatch(digest):
        raise NoAnswer(f"it sent no digest: {digest[:80]!r}")
    return digest


def _head(address: str, headers: dict[str, str]) -> dict[str, str]:
    request = urllib.request.Request(address, headers=headers, method="HEAD")  # noqa: S310  http and https only
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        return dict(answer.headers.items())


def _token(challenge: str) -> str:
    """The token that anybody may have for reading, from where the registry sends its visitors."""
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = wanted.pop("realm", "")
    if not re.match(r"https://|http://(localhost|127\.[0-9.]+)[:/]", realm):
        raise ValueError("it asks for a login that this program does not know")
    question = urllib.parse.urlencode({key: wanted[key] for key in ("service", "scope") if key in wanted})
    with urllib.request.urlopen(f"{realm}?{question}", timeout=SECONDS) as answer:  # noqa: S310
        told = json.loads(answer.read(1_000_000))
    return str(told.get("token") or told["access_token"])


def update(text: str, asked: Ask = ask) -> tuple[str, list[str], bool]:
    """The new text of the file, a line for each image, and whether all are pinned to the answer of now."""
    lines, said, fresh = text.splitlines(keepends=True), [], True
    answers: dict[str, str | NoAnswer] = {}
    name, base = "", ""
    for number, line in enumerate(lines):
        if image := _IMAGE.match(line):
            name, base = image["name"], ""
        field = _FIELD.match(line)
        if field and field["key"] == "base":
            base = field["value"]
        if not field or field["key"] != "digest":
            continue
        if base not in answers:
            answers[base] = _answer(base, asked)
        answer = answers[base]
        old = field["value"]
        if isinstance(answer, NoAnswer):
            fresh = False
            state = "not pinned" if old == "null" else f"still {old}"
            said.append(f"{name}: {state}; {base}: {answer}")
        else:
            lines[number] = line.replace(old, answer, 1)
            said.append(f"{name}: {base} is {answer}" + ("" if old in (answer, "null") else f", was {old}"))
    return "".join(lines), said, fresh


def _answer(base: str, asked: Ask) -> str | NoAnswer:
    try:
        return asked(parse_base(base))
    except NoAnswer as error:
        return error
    except ValueError as error:
        return NoAnswer(str(error))


def main(arguments: Sequence[str]) -> int:
    """The exit code of one call; see the module's text."""
    path = Path(arguments[0]) if arguments else FILE
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        print(f"update-images: {path} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    new, said, fresh = update(text)
    print("\n".join(said))
    if new != text:
        path.write_text(new, encoding="utf-8")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
