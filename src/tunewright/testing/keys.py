"""Sample keys, decisions and trials for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from tunewright.model.decision import Decision, Evidence, Finalist
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.spaces.config import Config

KEY = Key(
    kernel="gemm",
    source="0123abcd",
    signature=Signature(("float32[M,K]", "float32[K,N]", "float32[M,N]"), {"M": 512, "K": 256, "N": 128}),
    device=Device("cpu", "Some CPU", "x86_64", ("avx2", "avx512f"), {"cores": 8, "l2": 1 << 20}),
    toolchain={"compiler": "gcc 12.2.0", "flags": "-O3"},
    mode={"threads": "1", "regime": "hot"},
)

EVIDENCE = Evidence(
    seconds=1e-3,
    low=0.99e-3,
    high=1.01e-3,
    default_seconds=4e-3,
    ties=(Finalist(Config(tile=32, fast=True), 1.002e-3, 0.99e-3, 1.02e-3),),
    trials=10,
    failures=2,
    strategy="random",
    seed=7,
    clock="cpu",
    versions={"tunewright": "0.1.0"},
    when="2026-01-01T00:00:00+00:00",
)

DECISION = Decision(KEY, Config(tile=64, fast=True, order="ikj", share=0.5), EVIDENCE)

TIMED = Trial(Config(tile=64), Timing((1e-3, 1.1e-3, 0.9e-3), "cpu"), 0.25, 0.5, {"registers": 32.0}, 1e9)
FAILED = Trial(Config(tile=128), Failure(Stage.BUILD, Kind.REFUSED, "error: no such register"), 0.25, at=1e9 + 1)


def other_key(**changed: Any) -> Key:
    """Returns `KEY` with some fields changed."""
    return msgspec.structs.replace(KEY, **changed)


def other_decision(**changed: Any) -> Decision:
    """Returns `DECISION` with some fields changed."""
    return DECISION.replace(**changed)
