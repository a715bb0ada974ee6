"""Text -> plain data with positions: YAML 1.2's core types, and no surprises.

PyYAML reads YAML 1.1, where `no` is False, `22:22` is 1342 and the second of two equal keys wins
without a word.  Here a scalar is null, true, false, a number of the core schema or text; a key is
text and stands once; tags and merge keys are refused; aliases work, in bounds.  Nodes are composed
first and every one keeps its line and column, since PyYAML forgets them when it constructs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_DEPTH = 20
# Nodes after aliases are followed: what ten lines of aliases to aliases would explode to.
MAX_NODES = 100_000
MAX_NUMBER = 100

Path = tuple[str | int, ...]

_NULL, _BOOL, _INT, _FLOAT, _STR = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))


@dataclass(frozen=True, order=True)
class Position:
    """Where something stands; both numbers count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: where, with which value (empty path: the text itself), and what."""

    position: Position
    path: Path
    message: str


@dataclass
class Document:
    """What a text holds; `data` is null where a syntax fault stopped the reading.

    `numbers` keeps numbers as they were written, since 2.10 is 2.1 once it is read.
    """

    data: Any = None
    faults: list[Fault] = field(default_factory=list)
    values: dict[Path, Position] = field(default_factory=dict)
    keys: dict[Path, Position] = field(default_factory=dict)
    numbers: dict[Path, str] = field(default_factory=dict)

    def value_at(self, path: Path) -> Position:
        """Where the value of `path` begins, or that of the nearest thing around it."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Position())

    def key_at(self, path: Path) -> Position:
        """Where the key of `path` begins; its value where it has no key."""
        return self.keys.get(path) or self.value_at(path)


class _CoreLoader(yaml.SafeLoader):
    """Composes nodes with the core schema's types; constructs nothing."""

    # A new table: none of SafeLoader's YAML 1.1 resolvers is inherited.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str, document: Document) -> None:
        super().__init__(text)
        self.document = document
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag is not None:
            written = str(tag).replace("tag:yaml.org,2002:", "!!")
            message = f"the tag {shown(written)} is not supported; remove it"
            self.document.faults.append(Fault(_position(event.start_mark), (), message))
        if self.depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=event.start_mark, note="flatten it"
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern, _first in (
    (_NULL, r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (_BOOL, r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    (_INT, r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        _FLOAT,
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_tag, re.compile(_pattern), _first)


def load(text: str) -> Document:
    """Read one YAML document.  Never raises: what is wrong stands in the document's faults."""
    document = Document()
    try:
        node = _compose(text, document)
        if node is not None:
            document.data = _Builder(document).build(node, ())
    except yaml.MarkedYAMLError as error:
        document.data = None
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        document.faults.append(Fault(_position(mark), (), f"{problem}; {error.note or _remedy(problem)}"))
    document.faults.sort(key=lambda fault: fault.position)
    return document


def _compose(text: str, document: Document) -> yaml.Node | None:
    """The root node; raises MarkedYAMLError for everything that PyYAML cannot read."""
    try:
        loader = _CoreLoader(text, document)
    except yaml.reader.ReaderError as error:
        mark = yaml.Mark("", error.position, *_line_and_column(text, error.position), None, 0)
        raise yaml.MarkedYAMLError(
            problem=f"the character U+{ord(text[error.position]):04X} is not allowed",
            problem_mark=mark,
            note="remove it",
        ) from error
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError) as error:
        # PyYAML lets chr() and int() fail on escapes and numbers that are out of range.
        raise yaml.MarkedYAMLError(
            problem="an escape or number is out of range", problem_mark=loader.get_mark(), note="write it in full"
        ) from error
    finally:
        loader.dispose()


class _Builder:
    """Nodes -> plain data; positions and faults go into the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.nodes = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"aliases make this more than {MAX_NODES} values or {MAX_DEPTH} levels",
                problem_mark=node.start_mark,
                note="write the values out",
            )
        self.document.values[path] = _position(node.start_mark)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        raise TypeError(node)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            here = _position(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self.fault(here, path, "a key must be one word; write `name: value`")
                continue
            key = str(key_node.value)
            full = (*path, key)
            if key == "<<" and key_node.style is None:
                self.fault(here, path, 'merge keys ("<<") are not supported; use groups: or defaults:')
            elif full in self.document.keys and key in result:
                first = self.document.keys[full].line
                self.fault(here, full, f"this key stands twice, first on line {first}; remove one")
            else:
                if key_node.style is None and key_node.tag != _STR:
                    self.fault(here, full, f'the key {shown(key)} is not text; write "{key}":')
                self.document.keys[full] = here
                result[key] = self.build(value_node, full)
                if getattr(value_node, "value", None) == "":
                    # PyYAML places an empty value after its key's colon, where there is nothing to see.
                    self.document.values[full] = here
        return result

    def scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.fault(_position(node.start_mark), path, "half of a surrogate pair is no character; remove it")
            return ""
        if node.style is not None or node.tag == _STR:
            return text
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag not in (_INT, _FLOAT):
            return text
        if len(text) > MAX_NUMBER:
            self.fault(_position(node.start_mark), path, "a number of this length is surely a mistake; quote it")
            return text
        self.document.numbers[path] = text
        return _number(text, node.tag)

    def fault(self, position: Position, path: Path, message: str) -> None:
        self.document.faults.append(Fault(position, path, message))


def _number(text: str, tag: str) -> int | float:
    if tag == _INT:
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    # Python spells infinity and not-a-number without YAML's dot.
    return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))


def shown(value: object, limit: int = 60) -> str:
    """A value as a fault quotes it: one line, ASCII, at most `limit` characters between the quotes."""
    text = value if isinstance(value, str) else repr(value)
    text = ascii(text)[1:-1].replace("\\'", "'")
    return f'"{text if len(text) <= limit else text[: limit - 3] + "..."}"'


def _position(mark: yaml.Mark | None) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark else Position()


def _line_and_column(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index), index - (text.rfind("\n", 0, index) + 1)


def _remedy(problem: str) -> str:
    """What to write for the syntax errors that people make most."""
    if "'\\t'" in problem:
        return "indent with spaces, not with tabs"
    if "mapping values are not allowed" in problem:
        return "quote a value that holds a colon and a space, or check the indentation"
    if "expected a single document" in problem:
        return 'remove the second "---"'
    if "undefined alias" in problem or "alias" in problem:
        return "quote a value that starts with *, or name the anchor first"
    return "check quotes, brackets and the indentation"
