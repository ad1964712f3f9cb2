"""Gaussian process that predicts the cost of configs and its uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunewright.stats import normal_cdf, normal_pdf
from tunewright.strategies.rprop import minimize

Array = NDArray[np.float64]

ROOT5 = 5**0.5
JITTER = 1e-4
LOWEST, HIGHEST = -3.0, 4.0
"""Bounds of the logarithm of a length scale."""


class Surrogate:
    """Matérn 5/2 kernel with a length scale for every column and maximum a posteriori hyperparameters.

    `lengths` are the expected length scales. `owners` says which of them each column has, if columns share some.
    Fitting costs n³ for n trials, predicting n² per candidate.
    """

    def __init__(self, lengths: Array, owners: NDArray[np.intp] | None = None, *, noise: float = 0.05) -> None:
        scales = len(lengths)
        self._owners = np.arange(scales) if owners is None else owners
        self._mean = np.log(np.r_[lengths, 1.0, noise])
        self._spread = np.r_[np.ones(scales), 0.7, 1.0]
        self._lower = np.r_[np.full(scales, LOWEST), LOWEST, -6.0]
        self._upper = np.r_[np.full(scales, HIGHEST), 2.0, 0.0]
        self._theta = self._mean.copy()
        self._points: Any = np.empty((0, len(self._owners)), dtype=np.float32)
        self._factor = np.empty((0, 0))
        self._factor_theta: Array | None = None

    @property
    def noise(self) -> float:
        """Standard deviation of a value at the same point, as fitted."""
        return float(np.exp(self._theta[-1]))

    def fit(self, points: NDArray[Any], values: Array, steps: int = 25) -> None:
        """Choose hyperparameters by resilient propagation (Rprop), starting from the last fit."""
        distances = self._squared_distances(points.astype(float))
        bounds = self._lower, self._upper
        self._theta = minimize(lambda theta: self._cost(theta, distances, values), self._theta, bounds, steps)

    def _squared_distances(self, points: Array) -> Array:
        """Returns the squared distances between points: a column for each length scale."""
        own = [points[:, self._owners == owner] for owner in range(len(self._mean) - 2)]
        columns = [((part[:, None] - part[None]) ** 2).sum(-1).ravel() for part in own]
        return np.stack(columns, axis=-1) if columns else np.empty((len(points) ** 2, 0))

    def _cost(self, theta: Array, squared_distances: Array, values: Array) -> tuple[float, Array]:
        """Returns the negative log posterior of hyperparameters and its gradient."""
        n, scales = len(values), len(theta) - 2
        weights = np.exp(-2 * theta[:scales])
        squares = (squared_distances @ weights).reshape(n, n)
        r = np.sqrt(squares + 1e-16)
        decay = np.exp(-ROOT5 * r)
        shape = (1 + ROOT5 * r + 5 / 3 * squares) * decay
        signal, noise = np.exp(2 * theta[scales]), np.exp(2 * theta[scales + 1])
        try:
            lower = np.linalg.cholesky(signal * shape + (noise + 1e-6) * np.eye(n))
        except np.linalg.LinAlgError:
            return np.inf, np.zeros(len(theta))
        inverse = np.linalg.inv(lower)
        inverse = inverse.T @ inverse
        alpha = inverse @ values
        weight = 0.5 * (inverse - np.outer(alpha, alpha))
        gradient = np.empty(len(theta))
        gradient[:scales] = (
            (weight * (5 / 3) * signal * (1 + ROOT5 * r) * decay).ravel() @ squared_distances
        ) * weights
        gradient[scales] = 2 * signal * (weight * shape).sum()
        gradient[scales + 1] = 2 * noise * np.trace(weight)
        off = (theta - self._mean) / self._spread
        cost = 0.5 * values @ alpha + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(cost), gradient + off / self._spread

    def learn(self, points: NDArray[Any], values: Array) -> None:
        """Condition on `values` observed at `points`.

        Points that follow those of the last call cost n² each, unless the hyperparameters changed.
        """
        self._signal = np.float32(np.exp(2 * self._theta[-2]))
        scaled = self._scale(points)
        known = self._count_known(scaled) if self._factor_theta is self._theta else 0
        self._points, self._factor_theta = scaled, self._theta
        self._factor = self._extend_factor(self._factor[:known, :known])
        self._inverse_factor = self._factor.astype(np.float32)
        self.revise(values)

    def _count_known(self, scaled: NDArray[Any]) -> int:
        """Returns how many points are the first of the last call."""
        count = min(len(scaled), len(self._points))
        differs = (scaled[:count] != self._points[:count]).any(1)
        return int(differs.argmax()) if differs.any() else count

    def _extend_factor(self, factor: Array) -> Array:
        """Returns the inverse of the covariance's Cholesky factor, of which the first rows are known."""
        known, points = len(factor), self._points.astype(float)
        new = points[known:]
        if not len(new):
            return factor
        cross = factor @ self._kernel(points[:known], new)
        covariance = self._kernel(new, new)
        covariance[np.diag_indices(len(new))] = self._signal + np.exp(2 * self._theta[-1]) + JITTER
        inverse = np.linalg.inv(np.linalg.cholesky(covariance - cross.T @ cross))
        return np.block([[factor, np.zeros((known, len(new)))], [-inverse @ cross.T @ factor, inverse]])

    def revise(self, values: Array) -> None:
        """Condition on other values at the same points."""
        self._alpha = (self._inverse_factor @ values.astype(np.float32)) @ self._inverse_factor

    def whiten(self, columns: Array) -> Array:
        """Returns columns over the learned points after removing their correlation."""
        return (self._inverse_factor @ columns.astype(np.float32)).astype(float)

    def predict(self, points: NDArray[Any]) -> tuple[Array, Array]:
        """Returns mean and standard deviation at `points`."""
        cross = self._covariance(self._scale(points))
        mean = self._alpha @ cross
        half = self._inverse_factor @ cross
        variance = self._signal - np.einsum("ij,ij->j", half, half)
        return mean.astype(float), np.sqrt(np.maximum(variance, 1e-6)).astype(float)

    def draw(self, points: NDArray[Any], rng: np.random.Generator, count: int) -> Array:
        """Returns `count` samples of the posterior at `points`."""
        scaled = self._scale(points)
        cross = self._covariance(scaled)
        half = self._inverse_factor @ cross
        own = self._kernel(scaled, scaled).astype(float) - half.T @ half
        own[np.diag_indices(len(points))] += JITTER
        values, vectors = np.linalg.eigh(own)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self._alpha @ cross + rng.standard_normal((count, len(points))) @ root.T)

    def predict_mean(self, points: NDArray[Any]) -> Array:
        """Returns the mean at `points`; costs n per candidate."""
        return np.asarray(self._alpha @ self._covariance(self._scale(points)), dtype=float)

    def _scale(self, points: NDArray[Any]) -> NDArray[Any]:
        # Centered, so that the difference of squares below loses little in single precision.
        return np.asarray((points - 0.5) * np.exp(-self._theta[:-2])[self._owners], dtype=np.float32)

    def _covariance(self, points: NDArray[Any]) -> NDArray[Any]:
        return self._kernel(self._points, points)

    def _kernel(self, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None] - 2 * left @ right.T
        np.maximum(squares, 0, out=squares)
        r = np.float32(ROOT5) * np.sqrt(squares)
        squares *= np.float32(5 / 3)
        squares += r
        squares += 1
        squares *= np.exp(-r)
        squares *= self._signal
        return np.asarray(squares)


def log_improvement(mean: Array, spread: Array, best: float) -> Array:
    """Returns the log of the expected improvement on `best`, accurate also where the improvement underflows."""
    z = np.clip((best - mean) / spread, -30, 30)
    improvement = z * normal_cdf(z) + normal_pdf(z)
    tail = -0.5 * z * z - 2 * np.log(np.abs(z) + 1e-9) - 0.92
    return np.asarray(np.log(spread) + np.where(z < -4, tail, np.log(np.maximum(improvement, 1e-300))))
