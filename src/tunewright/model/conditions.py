"""Conditions: what went on beside a measurement."""

from __future__ import annotations

import msgspec


class Conditions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went on while something ran; zero also where this system does not say.

    Shares are of the time of all processors. `load` is seen at two moments only, the beginning and the end.
    """

    seconds: float = 0.0  # how long it was watched
    load: float = 0.0  # programs beside this one that ran or wanted to, per processor
    steal: float = 0.0  # share that the hypervisor gave to other machines
    busy: float = 0.0  # share that other programs used
    switches: float = 0.0  # times a second that this program had to make room for another
    drift: float = 0.0  # how much longer the same work took in the last third of the rounds than in the first
    throttled: float = 0.0  # share of rounds that ran a step slower than the best pace

    def complaints(self) -> list[str]:
        """What of this spoils measurements, in sentences for people."""
        speed, how = "the processor's speed changed", "longer" if self.drift > 0 else "less time"
        drift, slow = 100 * abs(self.drift), 100 * self.throttled
        told = (
            (self.busy > 0.25, f"other programs used {100 * self.busy:.0f} % of the processors"),
            (self.load >= 1, "beside this program, as many wanted to run as there are processors"),
            (self.steal > 0.02, f"the hypervisor took {100 * self.steal:.0f} % of the time"),
            (self.switches > 50, f"it was interrupted {self.switches:.0f} times a second"),
            (drift > 5, f"{speed}: the same work took {drift:.0f} % {how} at the end"),
            (drift <= 5 and slow > 10, f"{speed}: {slow:.0f} % of the rounds ran slower than its best"),
        )
        return [sentence for matters, sentence in told if matters]
