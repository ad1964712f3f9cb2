"""Tuned kernels: the `tune` decorator, its options and the generated call."""
