"""Every exception we raise on purpose.

TunewrightError
├── SpaceError        a knob, rule, variant, config or space is malformed
├── SignatureError    the arguments of a call do not fit the kernel's declaration
├── MemoError         a call or its result cannot be remembered as it is
├── BackendError      a kernel cannot be built or loaded at all (no compiler, no such function)
│   └── ScheduleError a step of a schedule is wrong, or cannot be taken on its payload
├── NoDecision        nothing is stored for a key, and the mode forbids tuning
├── NothingWorked     every config of a run failed
├── Sealed            something was compiled, measured or missed after this process was sealed
├── PluginError       a named plugin is missing or broken
├── SettingsError     a setting is unknown or has a value that makes no sense
├── StoreError        a store could not be read or written
│   └── BundleError   a bundle is damaged, not signed by whom it must be, or not what was pinned
└── WireError         a record was written by another schema, or is damaged
"""


class TunewrightError(Exception):
    """Base of all errors raised by this library; the message says what to do next."""


class SpaceError(TunewrightError):
    """A knob, rule, variant, config or space is malformed."""


class SignatureError(TunewrightError):
    """The arguments of a call do not fit the kernel's declaration."""


class MemoError(TunewrightError):
    """A call or its result cannot be remembered as it is."""


class BackendError(TunewrightError):
    """A kernel cannot be built or loaded."""


class ScheduleError(BackendError):
    """A step of a schedule is wrong, or cannot be taken on its payload; says which step."""


class NoDecision(TunewrightError):
    """Nothing is stored for a key, and the mode forbids tuning."""


class NothingWorked(TunewrightError):
    """Every config of a run failed."""


class Sealed(TunewrightError):
    """Something was compiled, measured or missed after this process was sealed."""


class PluginError(TunewrightError):
    """A named plugin is missing or broken."""


class SettingsError(TunewrightError):
    """A setting is unknown or has a value that makes no sense."""


class StoreError(TunewrightError):
    """A store could not be read or written."""


class BundleError(StoreError):
    """A bundle is damaged, not signed by whom it must be, or not what was pinned."""


class WireError(TunewrightError):
    """A record was written by another schema, or is damaged."""
