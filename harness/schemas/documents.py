"""The generated part of docs/records.md: words and fields, from the payload and the records.

`python -m harness.schemas` writes it anew between its two marker lines; a test fails until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import probe_payload
from harness.records.base import Record
from harness.records.payload import WIRE_RECORDS
from harness.records.work import Outcome, RunManifest

PATH = Path(__file__).resolve().parents[2] / "docs" / "records.md"
BEGIN = "<!-- from here to the end marker: written by `make schemas` -->"
END = "<!-- end of what `make schemas` writes -->"


def generated() -> str:
    """The tables, as Markdown: words first, then the fields of each record."""
    parts = [f"Schema version: `{probe_payload.SCHEMA_VERSION}`."]
    for title, words in (
        ("Statuses of a cell", probe_payload.STATUSES),
        ("Reasons", probe_payload.REASONS),
        ("Kinds", probe_payload.KINDS),
    ):
        parts += [f"## {title}", _table(("word", "meaning"), ((f"`{word}`", text) for word, text in words.items()))]
    parts.append("## Fields\n\nThose with a star are always there.")
    records: tuple[type[Record], ...] = (*WIRE_RECORDS.values(), RunManifest, Outcome)
    for record in records:
        schema = record.model_json_schema()
        parts += _record(schema["title"], schema)
        parts += [block for name, part in schema.get("$defs", {}).items() for block in _record(name, part)]
    return "\n\n".join(dict.fromkeys(parts))  # a part that several records share stands once


def render(document: str) -> str:
    """The document with its generated part as it should be now; raises ValueError without the markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PATH.name} lacks its markers: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{generated()}\n\n{END}{after}"


def write(path: Path = PATH) -> bool:
    """Write the document's generated part anew; gives whether it changed.  An installed harness has no docs."""
    if not path.exists():
        return False
    before = path.read_text(encoding="utf-8")
    after = render(before)
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


def _record(name: str, schema: Mapping[str, Any]) -> list[str]:
    """One record's heading, sentence and table, as one block so that it can be told from another's."""
    required = schema.get("required", ())
    rows = (
        (f"`{field}`{' *' if field in required else ''}", _type(part), part.get("description", ""))
        for field, part in schema.get("properties", {}).items()
    )
    text = " ".join(schema.get("description", "").split())
    return [f"### {name}\n\n{text}\n\n{_table(('field', 'type', 'what'), rows)}"]


def _type(part: Mapping[str, Any]) -> str:
    """A field's type in a few words."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return " ".join(f"`{word}`" for word in part["enum"])
    if "anyOf" in part:
        return " or ".join(_type(choice) for choice in part["anyOf"])
    if part.get("type") == "array":
        return f"list of {_type(part.get('items', {}))}"
    if part.get("type") == "object":
        inner: Any = part.get("additionalProperties") or next(iter(part.get("patternProperties", {}).values()), {})
        return f"map to {_type(inner)}" if isinstance(inner, dict) else "map"
    return str(part.get("type", "any"))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
