"""Deprecated names of the contracts in `tunewright.testing.capability_kit`."""

from __future__ import annotations

import warnings
from typing import Any

from tunewright.testing import capability_kit

_RENAMED = {
    "LeaseContract": "LeaseContract",
    "WantContract": "MissContract",
    "TallyContract": "TrialCountContract",
    "GenerationContract": "RevisionContract",
    "CacheContract": "FillContract",
    "ShelfContract": "NamespaceContract",
    "UpkeepContract": "MaintenanceContract",
}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = f"tunewright.testing.capability_kit.{_RENAMED[name]}"
    warnings.warn(f"{__name__}.{name} is deprecated; use {new}", DeprecationWarning, stacklevel=2)
    return getattr(capability_kit, _RENAMED[name])
