"""Compiles Triton kernels for GPUs that are not installed, and estimates which configs cannot work."""
