"""Two functions side by side: one fills its directory, the other fails meanwhile, the first time only."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch


def one(device, dtype):
    return [torch.ones(4, 4, device=device, dtype=dtype)]


def filler(x):
    while not Path(os.environ["HAZARD_MARK"]).exists():  # the victim fails first, whoever starts first
        time.sleep(0.02)
    for number in range(1 << 20):
        Path(f"file{number}").write_bytes(b"\1" * (1 << 20))
        time.sleep(0.01)


def first_time_fails(device, dtype):
    mark = Path(os.environ["HAZARD_MARK"])
    if not mark.exists():
        mark.touch()
        raise MemoryError("not the first time")
    return one(device, dtype)


def victim(x):
    return torch.sort(x)[0]


FUNCTIONS = {"filler": ("fills", filler, one), "victim": ("fails once", victim, first_time_fails)}
