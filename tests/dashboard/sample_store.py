"""A small store with a bit of everything that pages show."""

import numpy as np

from tunewright import Config, Knob, Rule, Space
from tunewright.dashboard import SavedReport
from tunewright.model.conditions import Conditions
from tunewright.model.decision import Decision, Evidence, Finalist, Gain
from tunewright.model.device import Device
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.report.roofline import Roofline
from tunewright.stores import transcripts
from tunewright.stores.statistics import MissRecord
from tunewright.stores.transcripts import Transcript
from tunewright.testing.keys import other_key
from tunewright.torch.report.compile_report import (
    AutotuneResult,
    BufferLifetime,
    CompileReport,
    GraphOperation,
    KernelReport,
    PassChange,
    as_dict,
)
from tunewright.torch.report.diagnosis import CodeLocation

SPACE = Space(
    Knob("tile", [8, 16, 32, 64]),
    Knob("unroll", [1, 2, 4, 8]),
    Knob("order", ["ij", "ji"]),
    rules=[Rule("it fits", lambda tile, unroll: tile * unroll <= 256)],
)
DEVICES = [Device("cuda", name, "sm_90", (), {"cores": 8}) for name in ("H100", "A100")]
EVIL = "<script>alert('gotcha')</script>\"><img src=x onerror=alert(1)>"
REFUSED = "error: no such register <b>"


def took(config: Config) -> float:
    """A pretended time: best at tile=32, unroll=4, order=ij."""
    bend = 1 + 0.3 * abs(np.log2(config["tile"] / 32)) + 0.2 * abs(np.log2(config["unroll"] / 4))
    return 1e-3 * float(bend) * (1.4 if config["order"] == "ji" else 1.0)


def trial(config: Config) -> Trial:
    if config["tile"] == 64 and config["unroll"] == 1:
        return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, REFUSED), 0.1, at=1.7e9)
    return Trial(config, Timing((took(config),), "gpu"), 0.1, 0.2, at=1.7e9)


TRIALS = [trial(config) for config in SPACE]
BEST = min(TRIALS, key=lambda one: one.seconds)


def key(size: int = 512, device: int = 0, **more):
    signature = Signature(("float32[M,K]",), {"M": size, "K": 256})
    return other_key(signature=signature, device=DEVICES[device], **more)


def evidence(seconds: float, **more) -> Evidence:
    said = {
        "default_seconds": 3 * seconds,
        "over_default": Gain(3.0, 2.9, 3.1),
        "ties": (Finalist(Config(tile=32, unroll=8, order="ij"), seconds, seconds, seconds),),
        "trials": 40,
        "failures": 2,
        "strategy": "portfolio",
        "clock": "gpu",
        "versions": {"tunewright": "0.1.0"},
        "when": "2026-05-01T10:00:00+00:00",
        "resolution": 0.008,
    }
    return Evidence(seconds, 0.99 * seconds, 1.01 * seconds, **{**said, **more})


def transcript(decision: Decision) -> Transcript:
    rng, configs = np.random.default_rng(0), [BEST.config, *(one.config for one in TRIALS[:3])]
    counts = (30, 30, 8, 4)
    times = [took(config) * np.exp(rng.normal(0, 0.01, count)) for config, count in zip(configs, counts, strict=True)]
    samples = np.concatenate(times).astype("<f4").tobytes()
    named = {"clock": "gpu", "when": decision.evidence.when, "default": 3}
    return Transcript(decision.key.digest, tuple(configs), 0, counts, (None, None, 8, 4), samples, 0.01, **named)


def filled(store):
    """`store`, with decisions, their history, trials, a race, wants, and names that bite."""
    noisy = Conditions(seconds=1.0, busy=0.5)
    old = Decision(key(), Config(tile=8, unroll=1, order="ji"), evidence(2e-3, when="2026-04-01T10:00:00+00:00"))
    for decision in (
        old,
        Decision(key(), BEST.config, evidence(1e-3)),
        Decision(key(1024), BEST.config, evidence(2e-3, conditions=noisy)),
        Decision(key(512, 1), BEST.config, evidence(1.5e-3, complete=False)),
        Decision(
            key(512, 0, toolchain={"compiler": "gcc 11"}), old.config, evidence(3e-3, when="2025-01-01T00:00:00+00:00")
        ),
        Decision(key(kernel=EVIL, device=0), Config(tile=8), None),
    ):
        store.put(decision)
    store.record(key(), TRIALS)
    store.record(key(kernel=EVIL), TRIALS[:5])
    store.record_misses([MissRecord(key(2048), 10, 5.0), MissRecord(key(64, kernel="conv"), 3, 9.0)])
    transcripts.keep_transcript(store, transcript(Decision(key(), BEST.config, evidence(1e-3))))
    return store


PREBUILD = {
    "kernel": "matmul", "rung": 1, "planned": 4, "dropped_before_compiling": 1,
    "rows": [
        {"target": "sm_90", "config": {"BLOCK": size, "num_warps": warps}, "keep": size < 128, "by": "compiler",
         "reasons": [] if size < 128 else ["it spills <much>"],
         "resources": {"registers": 64, "stack": 0, "shared": 4096, "tensor_columns": 0, "matrix": 4, "code_bytes": 900,
                       "occupancy": 0.5}}
        for size in (64, 128) for warps in (4, 8)
    ],
}  # fmt: skip
SCHEDULE = [
    {"name": "payload", "script": "", "code": "a\nb\nc"},
    {"name": "tile <x>", "script": "transform.tile", "code": "a\nB\nc"},
    {"name": "lower", "script": "transform.lower", "code": "a\nB\nd"},
]
DIAGNOSIS = {
    "name": "model", "calls": 1000, "phases": {"dynamo": 1.5}, "times": {"eager": 0.01}, "drifts": [], "notes": ["<i>"],
    "symptoms": [{"cause": "item", "kind": "graph break", "place": {"file": "model.py", "line": 8},
                  "wrong": "it breaks", "remedy": "keep it a tensor", "once": 0.0, "each": 0.001, "stake": 1.0}],
}  # fmt: skip
COUNTS = {
    "kernel": "transpose", "target": "sm_90", "rung": "emulated", "sizes": {"M": 8}, "outcomes": {"right": 2},
    "source": [{"file": "<t>.cu", "first": 3, "lines": ["if (a < b)", "    y[i] = x[i];", "}"]}],
    "configs": [
        {"config": {"PAD": pad}, "outcome": "right", "counters": {"warp_instructions": 90 + pad, "barriers": 0},
         "lines": [{"file": "<t>.cu", "line": 4, "warp_instructions": 80 + pad, "load_sectors": 1234}]}
        for pad in (0, 1)
    ],
}  # fmt: skip


def small() -> CompileReport:
    """A journey of two kernels, with a bit of everything."""
    captured = (GraphOperation("linear", "linear", "f32[8, 96]", ("x",), CodeLocation(__file__, 1)),)
    final = (GraphOperation("addmm", "addmm", "f32[8, 96]"), GraphOperation("mul", "mul", "f32[8, 96]"))
    kernels = (
        KernelReport(
            "addmm",
            ("addmm",),
            call="extern_kernels.addmm(<x>)",
            label="product",
            seconds=2e-3,
            best=2e-3,
            moved=10,
            flops=100,
            least=1e-3,
        ),
        KernelReport(
            "cpp_fused_mul_0",
            ("mul",),
            loops=2,
            code="void kernel(<T>)",
            label="mul",
            seconds=1e-3,
            best=1e-3,
            moved=9,
            flops=8,
            least=2e-3,
        ),
    )
    return CompileReport(
        name="<Small>",
        source=((CodeLocation(__file__, 1), "y = a < b"),),
        captured=captured,
        lowered=final,
        final=final,
        origins={"addmm": ("linear",), "mul": ("linear",)},
        changes=(PassChange("fold", 3, 2, ("a (add)",), ()),),
        idle=("others",),
        loops=3,
        kernels=kernels,
        contests=(AutotuneResult("mm 8x8", (("library", 1e-3), ("template", 2e-3))),),
        buffers=(BufferLifetime("buf0", 1024, 1, 2),),
        roof=Roofline(1e9, ((1024, 1e9), (4096, 1e8))),
        times={"eager": 4e-3, "compiled": 3e-3},
        notes=("<a note>",),
    )


FILED = [
    SavedReport("resources", "prebuilt", PREBUILD),
    SavedReport("schedule", "steps", SCHEDULE),
    SavedReport("diagnosis", "sick", DIAGNOSIS),
    SavedReport("journey", "from Python", as_dict(small())),
    SavedReport("counts", "counted", COUNTS),
]
