"""Triton: kernels for GPUs, compiled with or without one."""
