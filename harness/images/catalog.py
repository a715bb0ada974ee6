"""docker/images.yaml -> the images that can be built, every fault with its line and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness import strict_yaml
from harness.errors import UsageError
from harness.records.base import BackendName
from harness.records.images import Catalog, ImageSpec

PROJECT = Path(__file__).resolve().parents[2]
FILE = "docker/images.yaml"


def load_catalog(project: Path = PROJECT) -> Catalog:
    """What docker/images.yaml of a clone says; raises UsageError with everything that is wrong with it."""
    try:
        text = (project / FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{FILE} cannot be read: {error.strerror}", hint="run this from a clone") from None
    return parse_catalog(text)


def parse_catalog(text: str) -> Catalog:
    """The same from a text."""
    document = strict_yaml.load(text)
    faults = [(fault.position, fault.message) for fault in document.faults]
    names, data = _by_name(document.data)
    try:
        catalog = Catalog.model_validate(data)
    except ValidationError as error:
        for detail in error.errors():
            where = tuple(names[part] if isinstance(part, int) else part for part in detail["loc"])
            faults.append((document.value_at(where), f"{'.'.join(where)}: {detail['msg']}"))
    if faults:
        raise UsageError(
            "\n".join(f"{FILE}:{at.line}:{at.column} {message}" for at, message in sorted(set(faults))),
            hint="compare with the entries beside it",
        )
    return catalog


def _by_name(data: Any) -> tuple[list[str], dict[str, Any]]:
    """The images' names, and the file's data with each name moved into its image."""
    data = data if isinstance(data, dict) else {}
    images = data.get("images")
    entries = images if isinstance(images, dict) else {}
    named = [{**(entry if isinstance(entry, dict) else {}), "name": name} for name, entry in entries.items()]
    return list(entries), {**data, "images": named}


def select(catalog: Catalog, names: Sequence[str]) -> tuple[ImageSpec, ...]:
    """The images of these names, all if there are none; raises UsageError for a name that is not there."""
    known = {spec.name: spec for spec in catalog.images}
    for name in names:
        if name not in known:
            why = "Metal exists on macOS itself only, so mps has no image; " if name == "mps" else ""
            raise UsageError(f"there is no image {name!r}", hint=f"{why}there are {', '.join(known)}")
    return tuple(known[name] for name in names) if names else catalog.images


def reference_of(backend: BackendName) -> str:
    """The image of ours for a backend: the first that docker/images.yaml has of it; raises UsageError for none."""
    for spec in load_catalog().images:
        if spec.backend == backend:
            return spec.reference
    raise UsageError(f"docker/images.yaml has no image for {backend}", hint="name one with `image:` in hosts.yaml")
