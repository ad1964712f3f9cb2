"""The door for compiled models: `from tunewright.torch import doctor`."""

from tunewright.fronts.torch.doctor import doctor
from tunewright.fronts.torch.journey import journey
from tunewright.fronts.torch.loading import Shipped, load
from tunewright.fronts.torch.remote import remote_cache
from tunewright.fronts.torch.shipping import bundle
from tunewright.report.diagnosis import Cause, Diagnosis, Symptom
from tunewright.report.journey import Journey

__all__ = ["Cause", "Diagnosis", "Journey", "Shipped", "Symptom", "bundle", "doctor", "journey", "load", "remote_cache"]
