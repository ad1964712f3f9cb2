"""Matches for the referee: attacks and honest candidates for small tasks, and tasks in the style of KernelBench."""
