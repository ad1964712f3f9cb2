"""Conditions: the state of the machine during a measurement."""

from __future__ import annotations

import msgspec


class Conditions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the machine during a measurement; zero also where the system does not report it.

    Shares are of the time of all processors. `load` is the mean of two readings, at the beginning and the end.
    """

    seconds: float = 0.0  # duration of the measurement
    load: float = 0.0  # other runnable programs per processor
    steal: float = 0.0  # share that the hypervisor gave to other machines
    busy: float = 0.0  # share that other programs used
    switches: float = 0.0  # involuntary context switches per second
    drift: float = 0.0  # relative slowdown of the last third of the rounds compared with the first
    throttled: float = 0.0  # share of rounds that ran well below the best pace
    gpu: tuple[str, ...] = ()  # what disturbed the card, as its driver reports it

    def complaints(self) -> list[str]:
        """Returns what disturbed the measurement, in sentences for people."""
        speed, change = "the processor's speed changed", "longer" if self.drift > 0 else "less time"
        drift, slow = 100 * abs(self.drift), 100 * self.throttled
        sentences = (
            (self.busy > 0.25, f"other programs used {100 * self.busy:.0f} % of the processors"),
            (self.load >= 1, "as many other programs were ready to run as there are processors"),
            (self.steal > 0.02, f"the hypervisor took {100 * self.steal:.0f} % of the time"),
            (self.switches > 50, f"it was interrupted {self.switches:.0f} times a second"),
            (drift > 5, f"{speed}: the same work took {drift:.0f} % {change} at the end"),
            (drift <= 5 and slow > 10, f"{speed}: {slow:.0f} % of the rounds ran slower than its best"),
        )
        return [*(sentence for applies, sentence in sentences if applies), *self.gpu]
