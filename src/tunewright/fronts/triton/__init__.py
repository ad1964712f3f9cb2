"""Triton: a drop-in for `triton.autotune` that keys rightly, races, and remembers."""
