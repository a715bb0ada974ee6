"""What a payload writes, line by line: run, environment, device, artifact, cell, end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.records.base import BackendName, Count, Record, Seconds, Sha256, Short, Status, Text, Word


class RunRecord(Record):
    """The first line: who wrote this file, with which payload, when."""

    record: Literal["run"]
    schema_version: Short
    payload_version: Short
    payload_sha256: Sha256 | None = Field(description="of the payload's own file, computed on the host")
    argv: list[Text] = Field(max_length=200)
    started: Short = Field(description="ISO 8601, UTC")


class BackendFact(Record):
    """Whether torch's runtime for one accelerator says that it is available, and why not."""

    name: BackendName
    available: bool
    reason: Short | None = None


class Environment(Record):
    """What this machine and this torch are.  A fact that failed is null; `unknown` says why."""

    record: Literal["environment"]
    torch_version: Short | None = None
    torch_git: Short | None = None
    torch_build: Literal["cpu", "cuda", "rocm", "xpu"] | None = None
    torch_build_version: Short | None = Field(None, description="of CUDA, ROCm or XPU")
    torch_default_backend: Short | None = None
    torch_threads: Count | None = None
    torch_interop_threads: Count | None = None
    torch_cpu_capability: Short | None = None
    triton_version: Short | None = None
    python_version: Short | None = None
    python_implementation: Short | None = None
    python_executable: Short | None = None
    os: Short | None = None
    kernel: Short | None = None
    arch: Short | None = None
    machine_model: Short | None = None
    cpu_model: Short | None = None
    cpu_count: Count | None = None
    cpu_granted: Annotated[float, Field(gt=0, le=1e6)] | None = Field(None, description="cores, by cgroup and affinity")
    memory_bytes: Count | None = None
    memory_limit_bytes: Count | None = Field(None, description="of the cgroup, where it has one")
    vector_isa: Short | None = None
    startup: dict[Word, Seconds] = Field(
        default_factory=dict, max_length=20, description="wall seconds of what all cells share: import, ISA, header"
    )
    cxx: Short | None = None
    cxx_version: Short | None = None
    env_set: dict[Short, Text] = Field(default_factory=dict, max_length=200)
    env_cleared: dict[Short, Text] = Field(default_factory=dict, max_length=200)
    backends: list[BackendFact] = Field(default_factory=list, max_length=16)
    fingerprint: Sha256 | None = Field(None, description="over the hardware facts")
    fingerprint_covers: list[Short] = Field(default_factory=list, max_length=100)
    unknown: dict[Short, Text] = Field(default_factory=dict, max_length=100)


class DeviceRecord(Record):
    """One device, as torch calls it; `ok`, or `blocked` with the command that mends it."""

    record: Literal["device"]
    device: Word
    backend: BackendName
    index: Count | None = Field(None, description="the host's index, also where a cell sees only this device")
    status: Literal["ok", "blocked", "unsupported"]
    reason: Short | None = None
    message: Text | None = None
    hint: Text | None = None
    name: Short | None = None
    capability: Short | None = Field(None, description="compute capability, gfx architecture or GPU family")
    memory_bytes: Count | None = None
    driver: Short | None = None
    uuid: Short | None = None
    compute_units: Count | None = Field(None, description="SMs, CUs, EUs or GPU cores")
    warp_size: Count | None = None
    shared_memory_bytes: Count | None = None
    mig_parent: Short | None = None
    mig_slice: Short | None = None
    unknown: dict[Short, Text] = Field(default_factory=dict, max_length=100)


class ArtifactRecord(Record):
    """One generated text, once per hash."""

    record: Literal["artifact"]
    sha256: Sha256
    text: Annotated[str, StringConstraints(max_length=4_000_000)]


class Kernel(Record):
    """One kernel that Inductor wrote (or a generator that the classifier does not know)."""

    graph: Count
    name: Short
    kind: Word
    category: Short | None = Field(None, description="Triton heuristic, template, micro_gemm ...")
    line: Annotated[int, Field(ge=1)]
    lines: Count = Field(description="length of the kernel, in lines")
    operations: list[Short] = Field(default_factory=list, max_length=400, description="ATen operations fused into it")
    openmp: bool | None = None
    vectorized: bool | None = None


class Call(Record):
    """One library or ATen operation that the wrapper calls."""

    graph: Count
    name: Short
    kind: Word
    count: Annotated[int, Field(ge=1)]
    lines: list[Annotated[int, Field(ge=1)]] = Field(max_length=2000)


class Evidence(Record):
    """A line that decided something."""

    graph: Count
    line: Annotated[int, Field(ge=1)]
    kind: Word
    why: Short
    text: Short


class Graph(Record):
    """One compiled graph, in the order of compilation."""

    index: Count
    role: Literal["inference", "forward", "backward", "unknown"]
    wrapper: Literal["python", "cpp"]
    artifact: Sha256
    lines: Count


class Route(Record):
    """One way to the code: how many texts it gave, or why none."""

    name: Word
    codes: Count | None = None
    error: Text | None = None
    agrees: bool | None = Field(None, description="with the texts that were kept, ids and paths aside")


class Correctness(Record):
    """The compiled result against eager on the same inputs."""

    verdict: Literal["equal", "close", "wrong", "not_compared"]
    max_abs: float | None = None
    max_rel: float | None = None
    atol: float | None = None
    rtol: float | None = None
    message: Text | None = None


class Phase(Record):
    """CPU and wall seconds of one step of a cell; wall is null where other cells ran beside it."""

    name: Word
    cpu_s: Seconds
    wall_s: Seconds | None = None


class Exit(Record):
    """How the cell's process ended; `memory_bytes` is the peak of the largest process in it."""

    code: int | None = None
    signal: Short | None = None
    cpu_s: Seconds | None = None
    memory_bytes: Count | None = None


class CellRecord(Record):
    """One attempt at device x function x variant and its outcome."""

    record: Literal["cell"]
    device: Word
    function: Word
    variant: Word
    title: Short | None = None
    status: Status
    reason: Short | None = None
    message: Text | None = None
    hint: Text | None = None
    kind: Word | None = Field(None, description="the one kind, or mixed; null where there is none")
    kinds: dict[Word, Count] = Field(default_factory=dict, max_length=50)
    graphs: list[Graph] = Field(default_factory=list, max_length=500)
    kernels: list[Kernel] = Field(default_factory=list, max_length=5000)
    calls: list[Call] = Field(default_factory=list, max_length=5000)
    evidence: list[Evidence] = Field(default_factory=list, max_length=5000)
    route: Word | None = None
    routes: list[Route] = Field(default_factory=list, max_length=10)
    graph_breaks: Count | None = None
    break_reasons: list[Text] = Field(default_factory=list, max_length=50)
    cache_hits: Count | None = None
    correctness: Correctness | None = None
    phases: list[Phase] = Field(default_factory=list, max_length=20)
    phase: Word | None = Field(None, description="the last phase that was reached")
    workers: Count | None = Field(None, description="cells that ran side by side")
    exit: Exit | None = None
    stderr_tail: Text | None = None
    attempts: Annotated[int, Field(ge=1, le=100)] = 1
    rerun: Short | None = Field(
        None, description="why it was run again: neighbour (of a cell that exhausted the machine)"
    )
    started: Short | None = None
    ended: Short | None = None
    repeat: list[Text] = Field(default_factory=list, max_length=50, description="argv that repeats this cell")


class EndRecord(Record):
    """The last line.  A file without it was cut short; its cells still count."""

    record: Literal["end"]
    ended: Short
    cells: Count
    counts: dict[Word, Count] = Field(default_factory=dict, max_length=50)
    reason: Short | None = Field(None, description="null, deadline, interrupted, isolation ...")
    message: Text | None = None


WireRecord = RunRecord | Environment | DeviceRecord | ArtifactRecord | CellRecord | EndRecord
WIRE_RECORDS: dict[str, type[Record]] = {
    "run": RunRecord,
    "environment": Environment,
    "device": DeviceRecord,
    "artifact": ArtifactRecord,
    "cell": CellRecord,
    "end": EndRecord,
}


class Result(Record):
    """Everything that one target reported, checked; `artifacts` maps sha256 to text."""

    run: RunRecord | None = None
    environment: Environment | None = None
    devices: list[DeviceRecord] = Field(default_factory=list)
    artifacts: dict[str, str] = Field(default_factory=dict, repr=False)
    cells: list[CellRecord] = Field(default_factory=list)
    end: EndRecord | None = None
    unknown_fields: dict[str, int] = Field(default_factory=dict)
    faults: list[str] = Field(default_factory=list, description="lines that were refused, and why")
    incomplete: str | None = Field(
        default=None, description="the first fault by which this is not all, or not surely, what the target reported"
    )
    replaced: int = Field(default=0, description="records of which a later one told anew (a cell that was rerun)")
