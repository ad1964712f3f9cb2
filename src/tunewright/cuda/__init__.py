"""CUDA C++ kernels: compiled by nvcc for a GPU that need not be here, executed in the emulator, never timed there."""

from tunewright.cuda.backend import Cuda, CudaOptions
from tunewright.cuda.resources import DoesNotFit, KernelResources

__all__ = ["Cuda", "CudaOptions", "DoesNotFit", "KernelResources"]
