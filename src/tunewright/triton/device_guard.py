"""Finds the config that left the device unusable: no other may be blamed, and it must not be tried again."""

from __future__ import annotations

from collections.abc import Callable

from tunewright.errors import DeviceLost
from tunewright.spaces.config import Config
from tunewright.triton import adapter


class DeviceGuard:
    """Knows which config is `running`, or ran last, and whether the device still works.

    A launch returns before its kernel runs, so its error may surface in the turn of another config. Therefore the
    device is waited for before each turn. After an illegal access or a device assertion every call fails, in this
    process, for ever: `lost` is then the error that ends the search. `on_turn` is called when the turn of a config
    begins, before anything of it runs.
    """

    def __init__(self, name: str, *, has_device: bool = True) -> None:
        self._name, self._has_device = name, has_device
        self.running: Config | None = None
        self.on_turn: Callable[[Config], None] = lambda config: None
        self.lost: DeviceLost | None = None

    def begin(self, config: Config | None) -> None:
        """Begins the turn of a config; of none, if what runs now is not a config's. Raises `lost` if it is known."""
        if self.lost is not None:
            raise self.lost
        if config is not self.running and config != self.running:
            self.wait()
            self.running = config
            if config is not None:
                self.on_turn(config)

    def wait_for_earlier_work(self) -> None:
        """Waits for what the caller has launched: its errors are no config's fault."""
        try:
            self.wait()
        except Exception as error:
            if self.lost is not None:
                raise self.lost from error
            raise

    def wait(self) -> None:
        """Waits for the device."""
        if not self._has_device:
            return
        try:
            adapter.wait_for_device()
        except Exception as error:
            self.note(error)
            raise

    def note(self, error: Exception) -> None:
        """Finds out whether the device still works after an error: if not, waiting for it fails every time."""
        if self._has_device and self.lost is None and _cannot_wait() and _cannot_wait():
            self.lost = self._describe(error)
            self.lost.__cause__ = error

    def _describe(self, error: Exception) -> DeviceLost:
        said = f"{type(error).__name__}: {str(error).strip()}"
        restart = "No kernel can be launched in this process any more: restart it."
        if self.running is None:
            return DeviceLost(
                f"{self._name}: the device failed before a config was tried: {said}. {restart} "
                "Run with CUDA_LAUNCH_BLOCKING=1 to find the launch that failed."
            )
        return DeviceLost(
            f"{self._name}: the config {self.running} left the device unusable: {said}. {restart} The next search "
            "does not try this config again. `compute-sanitizer` shows what it does wrong.",
            self.running,
            f"it left the device unusable ({said})",
        )


def _cannot_wait() -> bool:
    try:
        adapter.wait_for_device()
    except RuntimeError:  # as torch and Triton raise for every error of a device
        return True
    return False
