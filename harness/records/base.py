"""What every record is made of: the two base classes and the bounded scalar types."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, model_validator

# Key under which a validation context may hold a Counter of unknown fields.
UNKNOWN_FIELDS = "unknown_fields"

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,119}$")]
Short = Annotated[str, StringConstraints(max_length=400)]
Text = Annotated[str, StringConstraints(max_length=20_000)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]

Status = Literal[
    "generated", "mixed", "extern_only", "view_only", "no_graph", "eager_fallback", "cpu_fallback",
    "unsupported", "blocked", "failed", "wrong", "crashed", "timeout", "flaky", "skipped", "not_run",
]  # fmt: skip
BackendName = Literal["cpu", "cuda", "rocm", "xpu", "mps"]


class Record(BaseModel):
    """A frozen record that ignores what it does not know and counts it in the context."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _count_unknown(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and isinstance(info.context, dict):
            counter: Counter[str] = info.context.setdefault(UNKNOWN_FIELDS, Counter())
            counter.update(f"{cls.__name__}.{str(key)[:60]}" for key in data if key not in cls.model_fields)
        return data


class StrictRecord(BaseModel):
    """A frozen record that refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
