"""Metrics of a service, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The metrics of one process, in their own registry."""

    def __init__(self, queued: Callable[[], float]) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("tunewright_requests", "Requests.", ("route", "status"), registry=registry)
        self._seconds = Histogram(
            "tunewright_request_duration_seconds",
            "Time to answer.",
            ("route",),
            registry=registry,
            buckets=LATENCY_BUCKETS,
        )
        lookups = Counter("tunewright_lookups", "Decisions asked for by digest.", ("found",), registry=registry)
        self.warm, self.stored, self.missed = (lookups.labels(source) for source in ("warm", "stored", "missed"))
        self.tiers = Counter("tunewright_answers", "Answers to keys, by tier.", ("tier",), registry=registry)
        self.publishes = Counter("tunewright_publishes", "Decisions published.", ("outcome",), registry=registry)
        self.trials = Counter("tunewright_trials", "Trials taken in.", registry=registry)
        self.refused = Counter("tunewright_refusals", "Requests turned away.", ("reason",), registry=registry)
        self.failures = Counter("tunewright_store_failures", "Requests that the store failed.", registry=registry)
        depth = Gauge("tunewright_queue_depth", "Calls of the store that wait for a thread.", registry=registry)
        depth.set_function(queued)
        self._by_route: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Counts a response."""
        if (metrics := self._by_route.get((route, status))) is None:
            metrics = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._by_route[route, status] = metrics
        metrics[0].inc()
        metrics[1].observe(seconds)

    def render(self) -> bytes:
        """Returns all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
