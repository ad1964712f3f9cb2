"""Modelling: a space as it is searched on a device: without what is hopeless there, with what is known beforehand."""

from __future__ import annotations

from typing import Any

from tunewright.backends.triton.artefacts import Shelf
from tunewright.backends.triton.features import compiled_figures
from tunewright.backends.triton.model import Model
from tunewright.backends.triton.subjects import subject
from tunewright.backends.triton.targets import target
from tunewright.errors import SettingsError, SpaceError
from tunewright.fronts.triton.attempt import Call
from tunewright.model.device import Device
from tunewright.remarks import Remarks
from tunewright.session import Session
from tunewright.spaces.space import Space

log = Remarks(__name__)

MOST = 20_000
"""Configs that are looked at one by one; a larger space is left as it is."""


def modelled(kernel: Any, space: Space, device: Device, call: Call, session: Session) -> Space:
    """The space without what the resource model calls hopeless, and with what it and the compiler know of the rest."""
    try:
        place, size = target(device.architecture), space.size
    except (SettingsError, SpaceError):  # a device that nobody described, or a space that cannot be counted
        return space
    if size > MOST:
        return space
    named = {name: value for name, value in call.kwargs.items() if name not in ("grid", "warmup")}
    subjected = subject(kernel, configs=())
    narrowed = Model(subjected, place, (call.args, named)).narrowed(space)
    if not narrowed.size:
        log.warning("%s: the resource model calls every config hopeless on %s; all are tried", subjected.name, place)
        return space
    if narrowed.size < size:
        log.info("%s: %d of %d configs are hopeless on %s", subjected.name, size - narrowed.size, size, place)
    built = [
        label
        for label in Shelf(session.settings.cache_path).labels()
        if (label.kernel, label.target) == (subjected.name, place.name)
    ]
    return narrowed.knowing(compiled_figures(built, narrowed.names)) if built else narrowed
