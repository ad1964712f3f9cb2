"""Meters: what a service counts and times, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Meters:
    """The figures of one process, in a registry of their own."""

    def __init__(self, queued: Callable[[], float]) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("tunewright_requests", "Requests.", ("route", "status"), registry=registry)
        self._seconds = Histogram(
            "tunewright_request_duration_seconds", "Time to answer.", ("route",), registry=registry, buckets=BOUNDS
        )
        lookups = Counter("tunewright_lookups", "Decisions asked for by digest.", ("found",), registry=registry)
        self.warm, self.stored, self.missed = (lookups.labels(how) for how in ("warm", "stored", "missed"))
        self.tiers = Counter("tunewright_answers", "Answers to keys, by tier.", ("tier",), registry=registry)
        self.publishes = Counter("tunewright_publishes", "Decisions published.", ("outcome",), registry=registry)
        self.trials = Counter("tunewright_trials", "Trials taken in.", registry=registry)
        self.refused = Counter("tunewright_refusals", "Requests turned away.", ("reason",), registry=registry)
        self.failures = Counter("tunewright_store_failures", "Requests that the store failed.", registry=registry)
        depth = Gauge("tunewright_queue_depth", "Calls of the store that wait for a thread.", registry=registry)
        depth.set_function(queued)
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        if (found := self._known.get((route, status))) is None:
            found = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._known[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def text(self) -> bytes:
        """All of them, as Prometheus reads it."""
        return generate_latest(self._registry)
