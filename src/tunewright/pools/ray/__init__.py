"""A pool on Ray: builders on any processor, a station on each device."""

from tunewright.pools.ray.pool import RayPool

__all__ = ["RayPool"]
