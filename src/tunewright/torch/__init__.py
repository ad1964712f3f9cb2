"""Compiled PyTorch models: `from tunewright.torch import compile, doctor, tuning`."""

from typing import TYPE_CHECKING

from tunewright.lazy_names import lazy_names

if TYPE_CHECKING:
    from tunewright.torch.calls import Call
    from tunewright.torch.compile_model import TuningBackend, compile, decisions, tuning
    from tunewright.torch.diagnostics.doctor import doctor
    from tunewright.torch.inductor.dead_code import pruning
    from tunewright.torch.loading import Shipped, load
    from tunewright.torch.remote_cache_store import remote_cache
    from tunewright.torch.report.compile_report import CompileReport
    from tunewright.torch.report.diagnosis import Cause, Diagnosis, Symptom
    from tunewright.torch.shipping import bundle
    from tunewright.torch.trace_compile import compile_report

__all__ = [
    "Call",
    "Cause",
    "CompileReport",
    "Diagnosis",
    "Shipped",
    "Symptom",
    "TuningBackend",
    "bundle",
    "compile",
    "compile_report",
    "decisions",
    "doctor",
    "load",
    "pruning",
    "remote_cache",
    "tuning",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Call": "tunewright.torch.calls",
        "Cause": "tunewright.torch.report.diagnosis",
        "CompileReport": "tunewright.torch.report.compile_report",
        "Diagnosis": "tunewright.torch.report.diagnosis",
        "Shipped": "tunewright.torch.loading",
        "Symptom": "tunewright.torch.report.diagnosis",
        "TuningBackend": "tunewright.torch.compile_model",
        "bundle": "tunewright.torch.shipping",
        "compile": "tunewright.torch.compile_model",
        "compile_report": "tunewright.torch.trace_compile",
        "decisions": "tunewright.torch.compile_model",
        "doctor": "tunewright.torch.diagnostics.doctor",
        "load": "tunewright.torch.loading",
        "pruning": "tunewright.torch.inductor.dead_code",
        "remote_cache": "tunewright.torch.remote_cache_store",
        "tuning": "tunewright.torch.compile_model",
    },
    deprecated={"Chooser": "TuningBackend", "Journey": "CompileReport", "journey": "compile_report"},
)
