"""Commands: whole programs whose flags are tuned like the knobs of a kernel."""

from tunewright.commands.backend import Command
from tunewright.commands.metrics import CpuSeconds, Regex, Seconds

__all__ = ["Command", "CpuSeconds", "Regex", "Seconds"]
