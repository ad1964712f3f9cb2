"""The door for compiled models: `from tunewright.torch import compile, doctor, tuning`."""

from tunewright.backends.inductor.pruning import pruning
from tunewright.fronts.torch.choosing import Chooser, compile, decisions, tuning
from tunewright.fronts.torch.doctor import doctor
from tunewright.fronts.torch.journey import journey
from tunewright.fronts.torch.loading import Shipped, load
from tunewright.fronts.torch.remote import remote_cache
from tunewright.fronts.torch.shipping import bundle
from tunewright.report.diagnosis import Cause, Diagnosis, Symptom
from tunewright.report.journey import Journey

__all__ = [
    "Cause",
    "Chooser",
    "Diagnosis",
    "Journey",
    "Shipped",
    "Symptom",
    "bundle",
    "compile",
    "decisions",
    "doctor",
    "journey",
    "load",
    "pruning",
    "remote_cache",
    "tuning",
]
