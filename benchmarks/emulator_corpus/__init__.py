"""Triton kernels of many kinds, each with four configs, inputs and a reference: what the emulator is tried on."""
