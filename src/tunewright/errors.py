"""All exceptions that this library raises.

TunewrightError
├── SpaceError        a knob, rule, variant, config or space is malformed
├── SignatureError    the arguments of a call do not fit the kernel's declaration
├── MemoError         a call or its result cannot be memoized
├── BackendError      a kernel cannot be built or loaded at all (no compiler, no such function)
│   └── ScheduleError a step of a schedule is wrong, or cannot be applied to its payload
├── NoDecision        no decision is stored for a key, and the mode forbids tuning
├── NothingWorked     every config of a run failed
├── NotInvariant      no configs give all sizes of a dimension the same bits
├── DeviceLost        a config left the device unusable for this process
├── Sealed            something was compiled, measured or missed after this process was sealed
├── PluginError       a named plugin is missing or broken
├── SettingsError     a setting is unknown or has an invalid value
├── StoreError        a store could not be read or written
│   ├── WriteRefused  a store that works did not accept a write, and would not accept it later either
│   └── BundleError   a bundle is damaged, too old, not signed by trusted keys, or not the pinned one
└── WireError         a record has another schema number, or is damaged
"""

from typing import Any, Self


class TunewrightError(Exception):
    """Base class of all errors of this library; the message says what to do."""


class SpaceError(TunewrightError):
    """Raised when a knob, rule, variant, config or space is malformed."""


class SignatureError(TunewrightError):
    """Raised when the arguments of a call do not fit the kernel's declaration."""


class MemoError(TunewrightError):
    """Raised when a call or its result cannot be memoized."""


class BackendError(TunewrightError):
    """Raised when a kernel cannot be built or loaded."""


class ScheduleError(BackendError):
    """Raised when a step of a schedule is wrong, or cannot be applied to its payload; names the step."""


class NoDecision(TunewrightError):
    """Raised when no decision is stored for a key, and the mode forbids tuning."""


class NothingWorked(TunewrightError):
    """Raised when every config of a search failed."""


class NotInvariant(TunewrightError):
    """Raised when no configs give rows the same bits at all sizes of a dimension; names the knob that changes them."""


class DeviceLost(TunewrightError):
    """Raised when a device became unusable for this process; `config` is to blame, or None if it is not known."""

    def __init__(self, message: str, config: Any = None, reason: str = "") -> None:
        super().__init__(message)
        self.config, self.reason = config, reason

    def blaming(self, config: Any) -> Self:
        """Blames a config, unless another is to blame."""
        self.config = config if self.config is None else self.config
        return self


class Sealed(TunewrightError):
    """Raised when something is compiled, measured or missed after this process was sealed."""


class PluginError(TunewrightError):
    """Raised when a named plugin is missing or broken."""


class SettingsError(TunewrightError):
    """Raised when a setting is unknown or has an invalid value."""


class StoreError(TunewrightError):
    """Raised when a store could not be read or written."""


class WriteRefused(StoreError):
    """Raised when a store that works does not accept a write: for lack of a right, or because of what it has."""


class BundleError(StoreError):
    """Raised when a bundle is damaged, too old, not signed by trusted keys, or not the pinned one."""


class WireError(TunewrightError):
    """Raised when a record has another schema number, or is damaged."""
