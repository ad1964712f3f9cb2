"""The door for compiled models: `from tunewright.torch import doctor`."""

from tunewright.fronts.torch.doctor import doctor
from tunewright.report.diagnosis import Cause, Diagnosis, Symptom

__all__ = ["Cause", "Diagnosis", "Symptom", "doctor"]
