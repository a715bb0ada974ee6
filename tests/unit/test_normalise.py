"""The normal form masks what differs by machine, nothing that the compiler decided, and can be undone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.normalise import normal_hash, normalise, restore
from tests.sample_report import CODES, avx2, text

EVERY = sorted(str(path.relative_to(CODES)) for path in CODES.glob("*/*") if path.suffix in (".py", ".txt"))
CACHE = "/tmp/torchinductor_lab"


def whats(value: str) -> set[str]:
    return {item.what for item in normalise(value).substitutions}


@pytest.mark.parametrize("name", EVERY)
def test_real_texts_can_be_restored_and_are_stable(name: str) -> None:
    raw = text(name)
    normal = normalise(raw)
    assert restore(normal) == raw
    assert normalise(normal.text).text == normal.text


@given(
    st.lists(
        st.sampled_from([
            "# AOT ID: ['0_inference']\n", "# kernel path: ", "/tmp/x/ab/c", "a" * 51, ".py", "num_threads(", "8", ")",
            "\n", "DeviceProperties(", "'backend_hash': '", "'", '#include "', "/", '"', "compiled_module_main('", "N",
            "...", "<path>", "a = None  # device(type='cpu') ", "7fedbfabd270",
        ])
    ).map("".join)
)  # fmt: skip
def test_any_text_can_be_restored(raw: str) -> None:
    normal = normalise(raw)
    assert restore(normal) == raw
    assert normalise(normal.text).text == normal.text


@pytest.mark.parametrize(
    ("what", "one", "other"),
    [
        ("graph_id", "# AOT ID: ['0_inference']\nimport torch\n", "# AOT ID: ['7_inference']\nimport torch\n"),
        ("graph_id", "# AOT ID: ['0_inference']\nimport torch\n", "import torch\n"),
        ("kernel_path", "# kernel path: /tmp/a/b.py\n", "# kernel path: /home/x/torchinductor_x/c/d.py\n"),
        ("threads", "#pragma omp parallel num_threads(6)\n", "#pragma omp parallel num_threads(96)\n"),
        ("threads", "constexpr int64_t num_threads = 2;", "constexpr int64_t num_threads = 16;"),
        ("device", "DeviceProperties(type='cuda', cc='90')", "DeviceProperties(type='cuda', cc='80')"),
        ("backend_hash", "'backend_hash': '0A'", "'backend_hash': '1B'"),
        ("module_hash", "compiled_module_main('None', f)", "compiled_module_main('ab12', f)"),
        (
            "address",
            "_frozen_param1 = None  # device(type='cpu') torch.float32 (64,) (1,) 7fedbfabd270",
            "_frozen_param1 = None  # device(type='cpu') torch.float32 (64,) (1,) 7f00bfab0010",
        ),
        (
            "cache_path",
            f"load('{CACHE}/ci/ccilh5itrah4vpyeve3bwuhj67tjh67745zbv7y4bidpeoraslke.py')",
            "load('/var/x/ab/ccilh5itrah4vpyeve3bwuhj67tjh67745zbv7y4bidpeorasabc.py')",
        ),
    ],
)
def test_masked(what: str, one: str, other: str) -> None:
    assert normal_hash(one) == normal_hash(other)
    assert whats(one) == {what}


def test_header_of_older_releases_is_included_by_its_path() -> None:
    raw = text("2.6.0-modes/cppwrapper_softmax.txt")
    assert {"header_path", "threads"} <= whats(raw)
    moved = raw.replace("<cache>", CACHE).replace("num_threads(2)", "num_threads(64)")
    assert moved != raw
    assert normal_hash(moved) == normal_hash(raw)


def test_addresses_of_frozen_parameters() -> None:
    assert "address" in whats(text("2.13-modes/linear_freeze.txt"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        pytest.param('#include "' + "/" * 10**6, id="slashes"),
        pytest.param(('#include "' + "/" * 5000 + "\n") * 200, id="lines of slashes"),
        pytest.param(" " * 10**6 + "#", id="blanks"),
        pytest.param("# kernel path: " * 70_000, id="kernel paths"),
        pytest.param("a" * 10**6, id="one word"),
        pytest.param("a = None  # device(" + " abcdef" * 150_000, id="addresses"),
        pytest.param("DeviceProperties(" * 60_000, id="devices"),
        pytest.param("'backend_hash': '" * 60_000, id="backend hashes"),
        pytest.param("compiled_module_main('" * 50_000, id="module hashes"),
        pytest.param("/ab/c" * 200_000, id="folders"),
        pytest.param(("/ab/c" + "a" * 49) * 20_000, id="paths that are nearly right"),
        pytest.param("/ab/c" + "a" * 50 + ".py" * 300_000, id="suffixes"),
    ],
)
def test_a_megabyte_of_a_hosts_text_takes_its_own_length(piece: str) -> None:
    """Time that grew with the square would not end here: a million steps are an instant, their square is not."""
    normal = normalise(piece)
    assert restore(normal) == piece


def test_what_the_compiler_decided_stays_visible() -> None:
    wide = text("2.13-cpu/pointwise.py")
    assert normal_hash(avx2(wide)) != normal_hash(wide)
    triton = text("2.13-cuda/softmax.py")
    assert normal_hash(triton.replace("'x': 128", "'x': 64")) != normal_hash(triton)
    assert normal_hash(triton.replace("132, cc='90'", "108, cc='80'")) == normal_hash(triton)


def test_a_shape_is_not_an_address() -> None:
    line = "buf0 = None  # comment (64, 1) 1234567"
    assert normalise(line).text == line


def test_a_lone_surrogate_has_a_hash() -> None:
    assert normal_hash("a\ud800") != normal_hash("a")
