"""The YAML loader: core schema types, positions, and one guard for each limit of PyYAML."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import harness
from harness import strict_yaml
from harness.strict_yaml import Position, load


def messages(text: str) -> list[str]:
    return [fault.message for fault in load(text).faults]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("off", "off"),
        ("y", "y"),
        ("22:22", "22:22"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("0b11", "0b11"),
        ("=", "="),
        ("tRue", "tRue"),
        ("1.2.3", "1.2.3"),
        ("0x", "0x"),
        ("0644", 644),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'true'", "true"),
        ('"2.10"', "2.10"),
        ("|\n  22", "22"),
    ],
)
def test_y1_scalars_have_the_types_of_yaml_1_2(written: str, value: object) -> None:
    document = load(f"key: {written}")
    assert document.faults == []
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


def test_y1_is_still_needed() -> None:
    assert yaml.safe_load("on: 22:22") == {True: 1342}
    assert load("on: 22:22").data == {"on": "22:22"}


def test_a_version_directive_does_not_bring_yaml_1_1_back() -> None:
    assert load("%YAML 1.1\n---\na: no").data == {"a": "no"}


def test_infinity_and_nan() -> None:
    data = load("[.inf, -.INF, .nan]").data
    assert data[:2] == [math.inf, -math.inf]
    assert math.isnan(data[2])


def test_y2_a_number_keeps_its_text() -> None:
    document = load("torch: 2.10\nlist: [3.10]")
    assert document.data["torch"] == 2.1
    assert document.numbers == {("torch",): "2.10", ("list", 0): "3.10"}


def test_y3_duplicate_keys_are_refused() -> None:
    assert yaml.safe_load("a: 1\na: 2") == {"a": 2}
    document = load("x:\n  a: 1\n  b: 2\n  'a': 3")
    [fault] = document.faults
    assert (fault.position, fault.path) == (Position(4, 3), ("x", "a"))
    assert "first on line 2" in fault.message
    assert document.data == {"x": {"a": 1, "b": 2}}


def test_equal_keys_in_different_mappings_are_fine() -> None:
    assert load("a: {p: 1}\nb: {p: 2}\nc: &c {p: 3}\nd: [*c, *c]").faults == []


def test_y4_every_value_and_key_has_its_position() -> None:
    document = load("hosts:\n  lab1:\n    port: 22\n    list: [a,\n      b]\n    none:\n")
    assert document.value_at(("hosts", "lab1", "port")) == Position(3, 11)
    assert document.key_at(("hosts", "lab1", "port")) == Position(3, 5)
    assert document.value_at(("hosts", "lab1", "list", 1)) == Position(5, 7)
    assert document.value_at(("hosts", "lab1", "none")) == Position(6, 5)
    # What is not in the file is placed at what would hold it.
    assert document.value_at(("hosts", "lab1", "absent", 3)) == Position(3, 5)
    assert document.value_at(()) == Position(1, 1)


def test_y5_tags_run_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    document = load(f'a: !!python/object/apply:os.mkdir ["{mark}"]\nb: !x 1\nc: !!str 2')
    assert not mark.exists()
    assert [fault.position for fault in document.faults] == [Position(1, 4), Position(2, 4), Position(3, 4)]
    assert '"!!python/object/apply:os.mkdir"' in document.faults[0].message


def test_y5_only_the_strict_loader_reads_yaml() -> None:
    for path in Path(harness.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml"
        }
        # To write YAML is harmless; `yaml.SafeLoader` stands in the one module that checks what it reads.
        if path.name == "strict_yaml.py":
            assert "SafeLoader" in used
        else:
            assert "yaml" not in froms, path
            assert used <= {"safe_dump"}, path


def test_merge_keys_are_refused_in_words() -> None:
    assert messages("a: &a {p: 1}\nb:\n  <<: *a\n  q: 1") == [
        'merge keys ("<<") are not supported; use groups: or defaults:'
    ]
    assert load("'<<': 1").data == {"<<": 1}


@pytest.mark.parametrize("key", ["1", "2.10", "true", "null", "~"])
def test_keys_are_text(key: str) -> None:
    assert messages(f"{key}: x") == [f'the key "{key}" is not text; write "{key}":']
    assert load(f"'{key}': x").data == {key: "x"}


def test_a_key_is_one_word() -> None:
    assert messages("[a]: 1") == ["a key must be one word; write `name: value`"]


def test_aliases_work() -> None:
    assert load("a: &a [1, {b: 2}]\nc: *a").data == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


def test_alias_bombs_are_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    document = load("\n".join(lines))
    assert document.data is None
    assert len(document.values) <= strict_yaml.MAX_NODES
    assert "aliases make this more than" in document.faults[-1].message


def test_an_alias_to_itself_is_bounded() -> None:
    assert load("a: &a [*a]").data is None
    assert len(load("a: &a [*a]").faults) == 1


@pytest.mark.parametrize("text", ["[" * 500_000, "{a: " * 100_000, "- " * 300_000, "? " * 300_000, "a:\n" * 9])
def test_depth_is_bounded(text: str) -> None:
    assert load(text).faults


def test_depth_below_the_limit_is_read() -> None:
    depth = strict_yaml.MAX_DEPTH - 1
    assert load("[" * depth + "]" * depth).faults == []


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a: 1\n\tb: 2", Position(2, 1), "indent with spaces, not with tabs"),
        ("a: b: c", Position(1, 5), "quote a value that holds a colon"),
        ("a: 1\n---\nb: 2", Position(2, 1), 'remove the second "---"'),
        ("a: *b", Position(1, 4), "quote a value that starts with *"),
        ("a:\n  b: \x07", Position(2, 6), "U+0007 is not allowed"),
        ('a: "x', Position(1, 6), "check quotes"),
        ('a: "\\U00110000"', Position(1, 7), "out of range"),
        ('a: "\\ud800"', Position(1, 4), "surrogate"),
        (f"%YAML {'9' * 5000}.1\n---\na", Position(1, 7), "out of range"),
        (f"a: {'9' * 5000}", Position(1, 4), "quote it"),
    ],
)
def test_a_syntax_fault_has_its_place_and_a_remedy(text: str, position: Position, words: str) -> None:
    [fault] = load(text).faults
    assert fault.position == position
    assert words in fault.message
    assert "\n" not in fault.message


def test_nothing_at_all() -> None:
    assert load("").data is None
    assert load("# only a comment\n").faults == []


@given(st.text(alphabet=st.sampled_from("ab:- \n\t[]{},&*!?|>'\"%@`#~<.0129xeE\\uU+_\ud800\x00é"), max_size=60))
def test_any_text_gives_a_document(text: str) -> None:
    document = load(text)
    assert document.faults == sorted(document.faults, key=lambda fault: fault.position)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_quoted_or_plain_comes_back(value: object) -> None:
    # JSON is YAML 1.2, but for what PyYAML's reader refuses.
    import json

    document = load(json.dumps({"key": value}))
    if not document.faults:
        assert document.data == {"key": value}
