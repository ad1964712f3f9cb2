"""Prunes a space by the resource model of a device, and adds features of earlier compiles."""

from __future__ import annotations

from typing import Any

from tunewright.errors import SettingsError, SpaceError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.device import Device
from tunewright.session import Session
from tunewright.spaces.space import Space
from tunewright.triton.launching import LaunchCall
from tunewright.triton.static.artifacts import ArtifactCache
from tunewright.triton.static.features import compiled_features
from tunewright.triton.static.kernels import unwrap_kernel
from tunewright.triton.static.model import ResourceModel
from tunewright.triton.static.targets import find_target

log = LazyLogger(__name__)

MAX_CONFIGS = 20_000
"""The largest space that is pruned."""


def prune_by_resources(kernel: Any, space: Space, device: Device, call: LaunchCall, session: Session) -> Space:
    """Returns the space without configs that the resource model calls hopeless, with features of the others."""
    try:
        target, size = find_target(device.architecture), space.size
    except (SettingsError, SpaceError):  # an unknown device, or a space that is too large to be counted
        return space
    if size > MAX_CONFIGS:
        return space
    kwargs = {name: value for name, value in call.kwargs.items() if name not in ("grid", "warmup")}
    declaration = unwrap_kernel(kernel, configs=())
    narrowed = ResourceModel(declaration, target, (call.args, kwargs)).narrow(space)
    if not narrowed.size:
        log.warning("%s: the resource model calls every config hopeless on %s; all are tried", declaration.name, target)
        return space
    if narrowed.size < size:
        log.info("%s: %d of %d configs are hopeless on %s", declaration.name, size - narrowed.size, size, target)
    records = [
        record
        for record in ArtifactCache(session.settings.cache_path).records()
        if (record.kernel, record.target) == (declaration.name, target.name)
    ]
    return narrowed.with_features(compiled_features(records, narrowed.names)) if records else narrowed
