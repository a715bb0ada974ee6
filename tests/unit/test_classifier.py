"""The classifier on texts that Inductor wrote: what decides, what must not, and what it makes of strange text.

The tables below were written by reading the texts (tests/data/codes/README.md says which are real
runs and which were written for an absent device), never by running the classifier.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe_payload import CALLED_KINDS, GENERATORS, KINDS, Classification, classify, excerpt, kind_of

CODES = Path(__file__).parents[1] / "data" / "codes"
FILES = sorted(str(path.relative_to(CODES)) for path in CODES.glob("*/*"))
FOLDERS = sorted({name.split("/")[0] for name in FILES})


def text_of(name: str) -> str:
    return (CODES / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------- what each text holds
#
# A line of a table: "kind category name" of each kernel in order, then "kind name xN" of each call.

MM = ["extern extern_kernels.mm x1"]
CONV = ["extern extern_kernels.convolution x1"]
SUM_BIG = ["triton reduction triton_red_fused_0", "triton persistent_reduction triton_per_fused_1"]
SOFTMAX_ONLINE = "triton persistent_reduction triton_per_fused_exp_prepare_softmax_online_sub_"
SDPA_POINTWISE = ["triton pointwise triton_poi_fused_0", "triton pointwise triton_poi_fused_1"]
BMM = ["extern extern_kernels.bmm x2"]

CUDA = {
    "conv2d": CONV,
    "cumsum": ["triton persistent_reduction triton_per_fused_0"],
    "fft": ["aten_fallback aten._fft_r2c.default x1"],
    "foreach": ["triton foreach triton_for_fused_0"],
    "layer_norm": ["triton persistent_reduction triton_per_fused_0"],
    "matmul": MM,
    "matmul_relu": ["triton pointwise triton_poi_fused_0", *MM],
    "pointwise": ["triton pointwise triton_poi_fused_0"],
    "sdpa": [*SDPA_POINTWISE, SOFTMAX_ONLINE + "2", *BMM],
    "softmax": [SOFTMAX_ONLINE + "0"],
    "sort": ["triton persistent_reduction triton_per_fused_0"],
    "sum_big": SUM_BIG,
    "topk": ["aten_fallback aten.topk.default x1"],
}
OLD_CUDA = {**CUDA, "softmax": ["triton persistent_reduction triton_per_fused_0"]}
MULTI = {
    **CUDA,
    "cumsum": SUM_BIG,
    "layer_norm": SUM_BIG,
    "softmax": ["triton reduction triton_red_fused_exp_prepare_softmax_online_sub_0", SOFTMAX_ONLINE + "1"],
    "sum_big": [*SUM_BIG, "triton reduction triton_red_fused_2", "triton persistent_reduction triton_per_fused_3"],
    "sdpa": [
        *SDPA_POINTWISE,
        "triton reduction triton_red_fused_exp_prepare_softmax_online_sub_2",
        SOFTMAX_ONLINE + "3",
        *BMM,
    ],
}
METAL = ["metal - generated_kernel_0"]
MPS = {
    "conv2d": CONV,
    "cumsum": ["aten_fallback aten.cumsum.default x1"],
    "fft": ["aten_fallback aten._fft_r2c.default x1"],
    "foreach": METAL,
    "layer_norm": METAL,
    "matmul": MM,
    "matmul_relu": [*METAL, *MM],
    "pointwise": METAL,
    "softmax": METAL,
    "sort": ["aten_fallback aten.sort.stable x1"],
    "sum_big": [*METAL, "metal - generated_kernel_1"],
    "topk": ["aten_fallback aten.topk.default x1"],
}
OLD_MPS = {
    name: [line.replace("generated_kernel_", "mps_lib_") for line in lines if "kernel_1" not in line]
    for name, lines in MPS.items()
}
CPP = ["cpp - cpp_fused_0"]
CPU = {
    "conv2d": [*CPP, *CONV],
    "cumsum": ["aten_fallback aten.cumsum.default x1"],
    "fft": ["aten_fallback aten._fft_r2c.default x1"],
    "foreach": CPP,
    "layer_norm": CPP,
    "matmul": MM,
    "matmul_relu": [*CPP, *MM],
    "pointwise": CPP,
    "sdpa": ["aten_fallback aten._scaled_dot_product_flash_attention_for_cpu.default x1"],
    "softmax": CPP,
    "sort": ["aten_fallback aten.sort.stable x1"],
    "sum_big": CPP,
    "topk": ["aten_fallback aten.topk.default x1"],
}
HALIDE = {  # what Halide cannot take; it could not be asked to write kernels without its own package
    **{name: CUDA[name] for name in ("conv2d", "fft", "matmul", "topk")},
    "cumsum": ["aten_fallback aten.cumsum.default x1"],
    "sort": ["aten_fallback aten.sort.stable x1"],
}
LONG = "cpp - cpp_fused_add_mul_relu_sin_tanh_0"
CPP_WRAPPER = {
    "cppwrapper_matmul": ["extern aoti_torch_cpu_mm_out x1"],
    "cppwrapper_pointwise": [LONG],
    "cppwrapper_softmax": ["cpp - cpp_fused__softmax_0"],
}
OLD_CPP_WRAPPER = {**CPP_WRAPPER, "cppwrapper_matmul": ["extern at::mm_out x1"]}
MODES = {
    **CPP_WRAPPER,
    "conv_relu_freeze": [
        "cpp - cpp_fused_relu_0",
        "cpp - cpp_fused_1",
        "extern mkldnn._convolution_pointwise.default x1",
    ],
    "dynamic_pointwise": [LONG],
    "int_pointwise": ["cpp - cpp_fused_add_mul_0"],
    "linear_bf16_freeze": ["extern mkldnn._linear_pointwise.default x1"],
    "linear_freeze": ["cpp - cpp_fused_addmm_0", "extern mkl._mkl_linear.default x1"],
    "linear_freeze_maxat_cpp": ["cpp micro_gemm cpp_fused_addmm_0"],
    "maxautotune_matmul": MM,
    "novec": [LONG],
    "tiny_pointwise": [LONG],
}
TEMPLATE = ["triton template triton_tem_fused_0"]
GPU_PROBE = {
    "matmul": MM,
    "pointwise": ["triton pointwise triton_poi_fused_add_mul_relu_0"],
    "softmax": ["triton persistent_reduction triton_per_fused__softmax_prepare_softmax_online_0"],
}
EXPECTED: dict[str, dict[str, list[str]]] = {
    "2.1.2-modes": OLD_CPP_WRAPPER,
    "2.4.1-modes": OLD_CPP_WRAPPER,
    "2.6.0-modes": CPP_WRAPPER,
    "2.10.0-modes": CPP_WRAPPER,
    "2.13-modes": MODES,
    "2.13-cpu": CPU,
    "2.4.1-cuda": {**OLD_CUDA, "sort": ["aten_fallback aten.sort.default x1"]},
    "2.8.0-cuda": OLD_CUDA,
    "2.12.1-cuda": CUDA,
    "2.13-cuda": CUDA,
    "2.13-cuda-autotune_at_compile": CUDA,
    "2.13-cuda-combo": CUDA,
    "2.13-cuda-halide": HALIDE,
    "2.13-cuda-multi": MULTI,
    "2.13-cuda-tem": {"matmul": TEMPLATE, "matmul_relu": TEMPLATE},
    "2.13-cuda-probe": GPU_PROBE,
    "2.13-cuda-cpp_wrapper": {
        **GPU_PROBE,
        "matmul": ["extern aoti_torch_cuda_mm_out x1"],
        "sum_big": ["triton reduction triton_red_fused_sum_0", "triton persistent_reduction triton_per_fused_sum_1"],
    },
    "2.13-xpu": GPU_PROBE,
    "2.8.0-mps": OLD_MPS,
    "2.12.1-mps": MPS,
    "2.13-mps": MPS,
    "2.13-mps-probe": {name: MPS[name] for name in ("matmul", "pointwise", "softmax")},
}
# Of the C++ kernels: which hold no `#pragma omp`, and which no `at::vec::`.
NO_OPENMP = {
    ("2.13-cpu/conv2d.py", "cpp_fused_0"),
    ("2.13-modes/conv_relu_freeze.txt", "cpp_fused_relu_0"),
    ("2.13-modes/int_pointwise.txt", "cpp_fused_add_mul_0"),
    ("2.13-modes/tiny_pointwise.txt", "cpp_fused_add_mul_relu_sin_tanh_0"),
}
NO_VECTOR = {("2.13-modes/novec.txt", "cpp_fused_add_mul_relu_sin_tanh_0")}


def shown(found: Classification) -> list[str]:
    kernels = [f"{item['kind']} {item['category'] or '-'} {item['name']}" for item in found.kernels]
    return kernels + [f"{item['kind']} {item['name']} x{item['count']}" for item in found.calls]


def test_every_folder_is_in_the_table() -> None:
    assert sorted(EXPECTED) == FOLDERS


@pytest.mark.parametrize("name", FILES)
def test_kernels_and_calls(name: str) -> None:
    folder, function = name.split("/")
    assert shown(classify(text_of(name))) == EXPECTED[folder][Path(function).stem]


@pytest.mark.parametrize("name", FILES)
def test_kinds_count_every_kernel_and_every_call(name: str) -> None:
    folder, function = name.split("/")
    counted: dict[str, int] = {}
    for line in EXPECTED[folder][Path(function).stem]:
        kind, times = line.split()[0], re.search(r" x(\d+)$", line)
        counted[kind] = counted.get(kind, 0) + (int(times[1]) if times else 1)
    found = classify(text_of(name))
    assert found.kinds == counted
    assert kind_of(found.kinds) == (next(iter(counted)) if len(counted) == 1 else "mixed")


@pytest.mark.parametrize("name", FILES)
def test_wrapper_and_role(name: str) -> None:
    found = classify(text_of(name))
    is_cpp = "cppwrapper" in name or "cpp_wrapper" in name
    assert found.wrapper == ("cpp" if is_cpp else "python")
    # Only the texts of a whole run carry the line that says inference, forward or backward.
    has_role = not is_cpp and ("modes" in name or "probe" in name or "xpu" in name)
    assert found.role == ("inference" if has_role else "unknown")


@pytest.mark.parametrize("name", FILES)
def test_parallel_and_vectorized(name: str) -> None:
    for kernel in classify(text_of(name)).kernels:
        key = name, kernel["name"]
        is_cpp = kernel["kind"] == "cpp"
        assert kernel["openmp"] == (key not in NO_OPENMP if is_cpp else None), key
        assert kernel["vectorized"] == (key not in NO_VECTOR if is_cpp else None), key


# ---------------------------------------------------------------- evidence

MARKERS = {
    r"kernel (\w+) by (\w+)": r"\b{1}\(",
    r"kernel (\w+) in the C\+\+ wrapper": r"\b{0}\b",
    r"category (\w+)": r"@(triton_heuristics\.)?{0}\(",
    r"openmp": r"#pragma omp",
    r"vectorized": r"at::vec::",
    r"micro_gemm": r"micro_gemm",
    r"calls extern_kernels\.(\w+)": r"extern_kernels\.{0}\(",
    r"calls (at::\w+)": r"{0}\(",
    r"calls ([\w.]+)": r"{0}\(",
    r"kernel chosen at run time": r"async_compile\.multi_kernel\(",
}


def marker(why: str) -> str:
    for pattern, needle in MARKERS.items():
        match = re.fullmatch(pattern, why)
        if match:
            return needle.format(*map(re.escape, match.groups()))
    raise AssertionError(f"no marker is known for the reason {why!r}")


@pytest.mark.parametrize("name", FILES)
def test_deciding_lines_hold_what_decided(name: str) -> None:
    text = text_of(name)
    lines = text.split("\n")
    found = classify(text)
    assert found.evidence
    for item in found.evidence:
        line = lines[item["line"] - 1]
        assert re.search(marker(item["why"]), line), (item, line)
        assert not line.lstrip().startswith(("# ", "//", "import ", "from ")), item
        assert item["text"] and item["text"] in line
    assert [item["line"] for item in found.evidence] == sorted(item["line"] for item in found.evidence)
    assert {item["kind"] for item in found.evidence} == set(found.kinds)


@pytest.mark.parametrize("name", FILES)
def test_a_kernel_stands_where_it_says(name: str) -> None:
    lines = text_of(name).split("\n")
    for kernel in classify(text_of(name)).kernels:
        first, last = kernel["line"], kernel["line"] + kernel["lines"] - 1
        assert kernel["name"] in lines[first - 1]
        assert kernel["lines"] > 3
        assert lines[last - 1].startswith(("''')", "''', ", "}"))


@pytest.mark.parametrize("name", FILES)
def test_excerpt_starts_where_the_kernel_starts(name: str) -> None:
    text = text_of(name)
    found = classify(text)
    first, shown_lines = excerpt(text, found)
    assert shown_lines == text.split("\n")[first - 1 : first - 1 + len(shown_lines)]
    if found.kernels:
        assert first == min(kernel["line"] for kernel in found.kernels)
        assert found.kernels[0]["name"] in shown_lines[0]
    else:
        assert any(found.calls[0]["name"].rpartition(".")[2] in line for line in shown_lines)


def test_excerpt_of_a_text_without_kernel_or_call_starts_at_its_function() -> None:
    text = "import torch\n\ndef call(args):\n    a, = args\n    return (a, )\n\nx = 1\n"
    assert excerpt(text, classify(text)) == (3, ["def call(args):", "    a, = args", "    return (a, )"])
    assert excerpt("", classify("")) == (1, [])


# ---------------------------------------------------------------- fused operations


@pytest.mark.parametrize("folder", ["2.13-cuda-probe", "2.13-xpu"])
def test_operations_come_from_the_comment_above_the_kernel(folder: str) -> None:
    (kernel,) = classify(text_of(f"{folder}/pointwise.py")).kernels
    assert kernel["operations"] == ["aten.mul", "aten.add", "aten.relu"]
    (kernel,) = classify(text_of(f"{folder}/softmax.py")).kernels
    assert kernel["operations"] == ["prims.prepare_softmax_online", "aten._softmax"]


def test_operations_of_each_of_several_kernels() -> None:
    kernels = classify(text_of("2.13-cuda/sdpa.py")).kernels
    assert [kernel["operations"] for kernel in kernels] == [
        [],
        [],
        ["prims.prepare_softmax_online", "aten.sub", "aten.exp"],
    ]


@pytest.mark.parametrize("name", ["conv_relu_freeze", "linear_freeze"])
def test_the_operations_of_a_library_call_are_no_kernels(name: str) -> None:
    # "Original ATen: [aten.relu]" stands above torch.ops.mkldnn...; the kernel after it only moves data.
    assert all(not kernel["operations"] for kernel in classify(text_of(f"2.13-modes/{name}.txt")).kernels)


def test_operations_from_the_comment_above_the_first_call() -> None:
    text = (
        "cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''\nvoid kernel() {}\n''')\n"
        "def call(args):\n"
        "    # Topologically Sorted Source Nodes: [r], Original ATen: [aten.relu, aten.mul]\n"
        "    cpp_fused_relu_0(buf0)\n"
    )
    (kernel,) = classify(text).kernels
    assert kernel["operations"] == ["aten.relu", "aten.mul"]


# ---------------------------------------------------------------- what must not decide

HEADERS = """\
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
from torch._inductor.codegen.multi_kernel import MultiKernelCall
import triton
import triton.language as tl
aten = torch.ops.aten
inductor_ops = torch.ops.inductor
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch.ops.inductor._reinterpret_tensor
async_compile = AsyncCompile()
async_compile.wait(globals())
del async_compile
"""


def test_headers_decide_nothing() -> None:
    found = classify(HEADERS + "def call(args):\n    return ()\n")
    assert (found.kinds, found.kernels, found.calls, found.evidence) == ({}, [], [], [])


HOSTILE = [
    "extern_kernels.mm(a, b, out=c)",
    "torch.ops.aten.sort.stable(x)",
    "torch.ops.mylib.op.default(x)",
    "k = async_compile.triton('k', 3)",
    "#pragma omp parallel",
    'at::vec:: extern "C" void cpp_fused_x_0(float* a)',
    "@triton_heuristics.reduction(",
    "aoti_torch_cpu_mm_out(a, b)",
    "cpp_wrapper_src = (",
]


def as_seen(found: Classification, shift: int = 0) -> Any:
    """Everything that was decided, line numbers moved back."""
    kernels = [
        {key: value - shift if key == "line" else value for key, value in kernel.items()} for kernel in found.kernels
    ]
    calls = [{**call, "lines": [number - shift for number in call["lines"]]} for call in found.calls]
    evidence = [{**item, "line": item["line"] - shift} for item in found.evidence]
    return found.wrapper, found.role, kernels, calls, evidence


def is_remark(line: str) -> bool:
    return line.lstrip().startswith(("# ", "//")) and "Original ATen" not in line and "AOT ID" not in line


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3))
def test_comments_never_decide(name: str, words: list[str]) -> None:
    text = text_of(name)
    hostile = "\n".join(f"{line} {' '.join(words)}" if is_remark(line) else line for line in text.split("\n"))
    assert as_seen(classify(hostile)) == as_seen(classify(text))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=5))
def test_comment_lines_and_strings_put_in_front_never_decide(name: str, words: list[str]) -> None:
    text = text_of(name)
    front = "".join(f"# {word}\nname_{n} = {word!r}\n" for n, word in enumerate(words))
    assert as_seen(classify(front + text), shift=front.count("\n")) == as_seen(classify(text))


def test_a_string_that_names_an_operation_is_no_call() -> None:
    for line in (
        "assert_size_stride(buf1, (1,), (1,), 'torch.ops.aten.convolution.default')",
        'assert_alignment(buf1, 16, "torch.ops.aten.topk.default(x)")',
        "assert_alignment(buf1, 16, 'it\\'s extern_kernels.mm(a)')",
    ):
        assert classify(line).kinds == {}


def test_a_method_of_another_object_is_no_call() -> None:
    for line in ("my.extern_kernels.mm(a)", "x.aten.sort(a)", "not_torch.ops.aten.sort(a)", "extern_kernels.mm"):
        assert classify(line).kinds == {}, line


# ---------------------------------------------------------------- rules, one by one


def kernel_text(name: str, callee: str, quote: str = "'''") -> str:
    return f"{name} = {callee}('{name}', {quote}\nbody\n{quote}, device_str='x')\n"


@pytest.mark.parametrize(("method", "kind"), sorted(GENERATORS.items()))
def test_every_generator_of_the_table(method: str, kind: str) -> None:
    found = classify(kernel_text("some_kernel_0", f"async_compile.{method}"))
    assert found.kinds == {kind: 1}
    assert found.kernels[0]["name"] == "some_kernel_0"
    assert kind in KINDS and kind not in CALLED_KINDS


@pytest.mark.parametrize(
    "text",
    [
        kernel_text("foo_0", "async_compile.foo"),
        kernel_text("k", "NewThing.load"),
        kernel_text("k", "new_thing", '"""'),
        "k = async_compile.warp_speed('k', source_of_k)\n",
    ],
)
def test_an_unknown_generator_shows(text: str) -> None:
    found = classify(text)
    assert found.kinds == {"unknown": 1}
    assert found.evidence[0]["line"] == 1


@pytest.mark.parametrize("method", ["wait", "multi_kernel", "size_hint_multi_kernel", "warm_pool"])
def test_what_writes_no_kernel(method: str) -> None:
    assert classify(f"async_compile.{method}(globals())\nm = async_compile.{method}('m', [a, b])\n").kinds == {}


def test_the_choice_among_kernels_is_evidence_and_no_kernel() -> None:
    found = classify(text_of("2.13-cuda-multi/softmax.py"))
    assert [item["line"] for item in found.evidence if item["why"] == "kernel chosen at run time"] == [178]
    assert found.kinds == {"triton": 2}


def test_the_copy_of_kernels_in_the_docstring_is_not_counted() -> None:
    text = text_of("2.13-cuda/softmax.py")
    start = text.index("triton_per_fused_exp")
    kernels = text[start : text.index("''', device_str='cuda')") + len("''', device_str='cuda')")]
    docstring = f'"""\nCompile-time auto-tuning block: \n\nimport triton\n{kernels}\n\nextern_kernels.mm(a)\n"""\n'
    assert "async_compile.triton(" in docstring
    found = classify(docstring + text)
    assert found.kinds == {"triton": 1}
    assert as_seen(found, shift=docstring.count("\n")) == as_seen(classify(text))


def test_the_docstring_before_a_cpp_program_is_not_counted_either() -> None:
    text = text_of("2.13-cuda-cpp_wrapper/sum_big.py")
    docstring = "r'''\nk = async_compile.triton('k', \"\"\"\nbody\n\"\"\")\n'''\n"
    assert as_seen(classify(docstring + text), shift=docstring.count("\n")) == as_seen(classify(text))


def test_operations_of_the_vendor_of_aten_and_of_others_are_told_apart() -> None:
    found = classify(
        "buf0 = torch.ops.aten.sort.stable(x)\n"
        "aten.copy_(a, b); aten.copy_(a, b)\n"
        "buf1 = torch.ops.onednn.qlinear_pointwise.default(x)\n"
        "buf2 = torch.ops._c10d_functional.all_reduce_.default(x, 'sum', '0')\n"
        "inductor_ops.accumulate_grad_(a, b)\n"
        "torch.ops.inductor.resize_storage_bytes_(a, 0)\n"
    )
    assert [(call["kind"], call["name"], call["count"], call["lines"]) for call in found.calls] == [
        ("aten_fallback", "aten.sort.stable", 1, [1]),
        ("aten_fallback", "aten.copy_", 2, [2, 2]),
        ("extern", "onednn.qlinear_pointwise.default", 1, [3]),
        ("custom_op", "_c10d_functional.all_reduce_.default", 1, [4]),
    ]


def test_calls_of_a_cpp_wrapper() -> None:
    found = classify(
        "cpp_wrapper_src = (\nr'''\n"
        "    aoti_torch_cpu_sort_stable(a, b);\n"
        "    aoti_torch_cpu_mkldnn__linear_pointwise(a, b);\n"
        "    aoti_torch_proxy_executor_call_function(p, 0);\n"
        "    at::_ops::cumsum::call(a, 0);\n"
        "    // at::mm_out(a, b);\n"
        "'''\n)\n"
    )
    assert found.kinds == {"aten_fallback": 3, "extern": 1}


@pytest.mark.parametrize("role", ["inference", "forward", "backward"])
def test_roles(role: str) -> None:
    assert classify(f"# AOT ID: ['3_{role}']\nimport torch\n").role == role


def test_kind_of() -> None:
    assert kind_of({}) is None
    assert kind_of({"cpp": 3}) == "cpp"
    assert kind_of({"cpp": 1, "extern": 1}) == "mixed"


# ---------------------------------------------------------------- strange text

PIECES = st.sampled_from([
    "'''", '"""', "\n", "k = async_compile.triton('k', ", "async_compile.cpp(", "cpp_wrapper_src = (\n", "a = (\n",
    'extern "C" void ', "kernel void f(", "x(", "}\n", "# Original ATen: [", "]", "\\", "'", '"', "extern_kernels.mm(",
    "torch.ops.aten.a(", "@triton_heuristics.pointwise(\n", "\x00", "\ud800", "é", "r", " ", "aoti_torch_cpu_mm_out(",
    "multi_kernel(",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_never_raises_on_any_text(text: str) -> None:
    found = classify(text)
    lines = text.split("\n")
    assert all(1 <= item["line"] <= len(lines) for item in found.evidence)
    assert all(k["line"] >= 1 and k["line"] + k["lines"] - 1 <= len(lines) for k in found.kernels)
    assert set(found.kinds) <= set(KINDS)
    excerpt(text, found)


@given(st.text())
def test_never_raises_on_free_text(text: str) -> None:
    classify(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "start", ["", '"', "# ", "cpp_wrapper_src = (\nr'''\n"], ids=["bare", "string", "remark", "cpp"]
)
@pytest.mark.parametrize(
    "piece",
    [
        "\\'", "'\\", "# Original ATen: [", 'extern "C" void a() {\n', " kernel void a(\n", "'''", '"""\n', "aten.",
        " ",         " torch.ops.a.", "torch.ops.a.b(", "aoti_torch_cpu_a_out", "async_compile.triton('a', '''\n",
        "async_compile.x( ",         "k = async_compile.triton('k', '''\n''')\n", "@pointwise(\n", "at::_ops::a",
    ],
)  # fmt: skip
def test_two_megabytes_of_anything_end(piece: str, start: str) -> None:
    """What takes a text's length squared would run for hours here; the limit above is generous."""
    text = start + piece * (2_000_000 // len(piece))
    classify(text)
