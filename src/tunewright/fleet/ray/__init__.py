"""A pool on Ray: build actors on any processor, a timing actor on each device."""

from tunewright.fleet.ray.pool import RayPool

__all__ = ["RayPool"]
