"""Surrogate: a Gaussian process over points, which says what a config may cost and how sure it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROOT5 = 5**0.5
JITTER = 1e-4
LOWEST, HIGHEST = -3.0, 4.0
"""Bounds of the logarithm of a length scale."""


class Surrogate:
    """Matérn 5/2 with a length scale for every column; hyperparameters are the most probable ones under a prior.

    The first `plain` columns (single knobs) are expected to matter more than the others: their prior length scale is
    `near`, that of the others `far`. Fitting costs n³ for n trials, predicting n² a candidate.
    """

    def __init__(self, plain: int, width: int, *, near: float = 1.0, far: float = 2.0, noise: float = 0.05) -> None:
        lengths = np.log(np.r_[np.full(plain, near), np.full(width - plain, far)])
        self._mean = np.r_[lengths, 0.0, np.log(noise)]
        self._spread = np.r_[np.ones(width), 0.7, 1.0]
        self._least = np.r_[np.full(width, LOWEST), LOWEST, -6.0]
        self._most = np.r_[np.full(width, HIGHEST), 2.0, 0.0]
        self._theta = self._mean.copy()
        self._points: Any = np.empty((0, width))

    def fit(self, points: NDArray[Any], values: Array, steps: int = 25) -> None:
        """Choose hyperparameters: resilient steps along the gradient, from where the last fit ended."""
        apart = (points[:, None].astype(float) - points[None]) ** 2
        apart = apart.reshape(len(points) ** 2, -1)
        theta, best = self._theta, (np.inf, self._theta)
        pace, last = np.full(len(theta), 0.15), np.zeros(len(theta))
        for _ in range(steps):
            cost, slope = self._cost(theta, apart, values)
            if cost < best[0]:
                best = cost, theta
            turned = slope * last
            pace = np.clip(np.where(turned > 0, 1.3 * pace, np.where(turned < 0, 0.5 * pace, pace)), 1e-3, 0.6)
            last = np.where(turned < 0, 0.0, slope)
            theta = np.clip(theta - np.sign(last) * pace, self._least, self._most)
        self._theta = best[1]

    def _cost(self, theta: Array, apart: Array, values: Array) -> tuple[float, Array]:
        """Minus the log posterior of hyperparameters, and its gradient."""
        n, width = len(values), len(theta) - 2
        weights = np.exp(-2 * theta[:width])
        squares = (apart @ weights).reshape(n, n)
        r = np.sqrt(squares + 1e-16)
        decay = np.exp(-ROOT5 * r)
        shape = (1 + ROOT5 * r + 5 / 3 * squares) * decay
        signal, noise = np.exp(2 * theta[width]), np.exp(2 * theta[width + 1])
        try:
            lower = np.linalg.cholesky(signal * shape + (noise + 1e-6) * np.eye(n))
        except np.linalg.LinAlgError:
            return np.inf, np.zeros(len(theta))
        inverse = np.linalg.inv(lower)
        inverse = inverse.T @ inverse
        pull = inverse @ values
        weight = 0.5 * (inverse - np.outer(pull, pull))
        slope = np.empty(len(theta))
        slope[:width] = ((weight * (5 / 3) * signal * (1 + ROOT5 * r) * decay).ravel() @ apart) * weights
        slope[width] = 2 * signal * (weight * shape).sum()
        slope[width + 1] = 2 * noise * np.trace(weight)
        off = (theta - self._mean) / self._spread
        cost = 0.5 * values @ pull + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(cost), slope + off / self._spread

    def learn(self, points: NDArray[Any], values: Array) -> None:
        """Condition on what was seen at `points`."""
        self._signal = np.float32(np.exp(2 * self._theta[-2]))
        noise = np.exp(2 * self._theta[-1]) + JITTER
        self._points = self._scaled(points)
        covariance = self._covariance(self._points).astype(float)
        covariance[np.diag_indices(len(points))] = float(self._signal) + noise
        self._half = np.linalg.inv(np.linalg.cholesky(covariance)).astype(np.float32)
        self.revise(values)

    def revise(self, values: Array) -> None:
        """Condition on other values at the same points."""
        self._pull = (self._half @ values.astype(np.float32)) @ self._half

    def whiten(self, columns: Array) -> Array:
        """Columns over the points learnt, with what the points have in common taken out."""
        return (self._half @ columns.astype(np.float32)).astype(float)

    def predict(self, points: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and standard deviation at `points`."""
        cross = self._covariance(self._scaled(points))
        mean = self._pull @ cross
        half = self._half @ cross
        variance = self._signal - np.einsum("ij,ij->j", half, half)
        return mean.astype(float), np.sqrt(np.maximum(variance, 1e-6)).astype(float)

    def draw(self, points: NDArray[Any], rng: np.random.Generator, count: int) -> Array:
        """`count` functions that may be the true one, at `points`."""
        there = self._scaled(points)
        cross = self._covariance(there)
        half = self._half @ cross
        own = self._kernel(there, there).astype(float) - half.T @ half
        own[np.diag_indices(len(points))] += JITTER
        values, vectors = np.linalg.eigh(own)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self._pull @ cross + rng.standard_normal((count, len(points))) @ root.T)

    def predict_mean(self, points: NDArray[Any]) -> Array:
        """The mean alone at `points`: n a candidate."""
        return np.asarray(self._pull @ self._covariance(self._scaled(points)), dtype=float)

    def _scaled(self, points: NDArray[Any]) -> NDArray[Any]:
        # Centred, so that the difference of squares below loses little in single precision.
        return np.asarray((points - 0.5) * np.exp(-self._theta[:-2]), dtype=np.float32)

    def _covariance(self, there: NDArray[Any]) -> NDArray[Any]:
        return self._kernel(self._points, there)

    def _kernel(self, here: NDArray[Any], there: NDArray[Any]) -> NDArray[Any]:
        squares = (here**2).sum(1)[:, None] + (there**2).sum(1)[None] - 2 * here @ there.T
        np.maximum(squares, 0, out=squares)
        r = np.float32(ROOT5) * np.sqrt(squares)
        squares *= np.float32(5 / 3)
        squares += r
        squares += 1
        squares *= np.exp(-r)
        squares *= self._signal
        return np.asarray(squares)


def log_improvement(mean: Array, spread: Array, best: float) -> Array:
    """The logarithm of the expected improvement on `best`, also far below what a float holds."""
    z = np.clip((best - mean) / spread, -30, 30)
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    improvement = z * _below(z) + density
    tail = -0.5 * z * z - 2 * np.log(np.abs(z) + 1e-9) - 0.92
    return np.asarray(np.log(spread) + np.where(z < -4, tail, np.log(np.maximum(improvement, 1e-300))))


def _below(z: Array) -> Array:
    """The normal distribution function (Abramowitz and Stegun 26.2.17, error below 1e-7)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(z > 0, 1 - upper, upper))
