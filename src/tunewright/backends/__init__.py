"""Backends that build, load and time kernels."""
