"""The covariance of times over shape and config, whose length scales are learned from trials."""

from __future__ import annotations

import numpy as np

from tunewright.shapes.table import Floats, Indices
from tunewright.strategies.rprop import minimize

LEVEL = 100.0
"""The variance of the level of a shape: nothing is known of it."""

REACH_IN_KNOBS, REACH_IN_SIZES, REACH_SPREAD = 0.0, 0.5, 1.0
"""The logarithms of length scales that are expected, and how uncertain they are."""

SIGNAL, SIGNAL_SPREAD, NOISE, NOISE_SPREAD = -1.0, 2.0, -4.0, 1.0
"""The same of variances: of each term, and of the noise."""

LOWEST, HIGHEST = -8.0, 4.0
"""Bounds of all these logarithms."""

STEPS = 30
"""Steps of a fit."""

ROOT5 = 5**0.5
JITTER = 1e-6


class Covariance:
    """A Matérn 5/2 term over knobs, one over all columns, the level of each shape, and noise.

    `theta` are logarithms: the length scales of both terms, the variances of both, and that of the noise.
    """

    def __init__(self, knobs: int, width: int) -> None:
        self._columns = slice(0, knobs), slice(0, width)
        self._lengths = slice(0, knobs), slice(knobs, knobs + width)
        reaches = np.r_[np.full(2 * knobs, REACH_IN_KNOBS), np.full(width - knobs, REACH_IN_SIZES)]
        self._mean = np.r_[reaches, SIGNAL, SIGNAL, NOISE]
        self._spread = np.r_[np.full(len(reaches), REACH_SPREAD), SIGNAL_SPREAD, SIGNAL_SPREAD, NOISE_SPREAD]
        self.theta = self._mean

    def fit(self, points: Floats, shapes: Indices, values: Floats) -> None:
        """Choose the hyperparameters of the largest posterior density that is found."""
        squares = ((points[:, None] - points[None]) ** 2).reshape(len(points) ** 2, -1)
        level = same_level(shapes, shapes)
        bounds = np.full(len(self._mean), LOWEST), np.full(len(self._mean), HIGHEST)
        self.theta = minimize(lambda theta: self._cost(theta, squares, level, values), self._mean, bounds, STEPS)

    def _cost(self, theta: Floats, squares: Floats, level: Floats, values: Floats) -> tuple[float, Floats]:
        """Returns the negative log posterior density of hyperparameters and its gradient."""
        count, gradient = len(values), np.zeros(len(theta))
        signals, noise = np.exp(theta[-3:-1]), float(np.exp(theta[-1]))
        scales = [np.exp(-2 * theta[lengths]) for lengths in self._lengths]
        terms = [
            _matern((squares[:, columns] @ own).reshape(count, count))
            for columns, own in zip(self._columns, scales, strict=True)
        ]
        covariance = level + signals[0] * terms[0][0] + signals[1] * terms[1][0] + (noise + JITTER) * np.eye(count)
        lower = np.linalg.cholesky(covariance)
        half = np.linalg.inv(lower)
        inverse = half.T @ half
        solved = inverse @ values
        weight = 0.5 * (inverse - np.outer(solved, solved))
        for term, (kernel, slope) in enumerate(terms):
            steep = (weight * signals[term] * slope).ravel() @ squares[:, self._columns[term]]
            gradient[self._lengths[term]] = steep * scales[term]
            gradient[term - 3] = signals[term] * (weight * kernel).sum()
        gradient[-1] = noise * np.trace(weight)
        off = (theta - self._mean) / self._spread
        cost = 0.5 * values @ solved + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(cost), gradient + off / self._spread

    @property
    def variance(self) -> float:
        """The variance of a time, without its shape's level and noise."""
        return float(np.exp(self.theta[-3:-1]).sum())

    @property
    def noise(self) -> float:
        """The variance of the noise."""
        return float(np.exp(self.theta[-1])) + JITTER

    def between(self, left: Floats, right: Floats) -> Floats:
        """Returns the covariance of points with others, without level and noise."""
        return self.by_knobs(left, right) + self.by_all(left, right)

    def by_knobs(self, left: Floats, right: Floats) -> Floats:
        """Returns the part of it that is the same on all shapes."""
        return self._term(0, left, right)

    def by_all(self, left: Floats, right: Floats) -> Floats:
        """Returns the part of it that differs by shape."""
        return self._term(1, left, right)

    def _term(self, term: int, left: Floats, right: Floats) -> Floats:
        columns, scales = self._columns[term], np.exp(-self.theta[self._lengths[term]])
        left, right = left[:, columns] * scales, right[:, columns] * scales
        squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None] - 2 * left @ right.T
        return np.asarray(np.exp(self.theta[term - 3]) * _matern(np.maximum(squares, 0.0))[0])


def same_level(left: Indices, right: Indices) -> Floats:
    """Returns the covariance of the levels of shapes, by their numbers."""
    return np.asarray(LEVEL * np.equal(left[:, None], right[None]))


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Returns the covariance at squared distances, and the factor of its gradient by the log of a length scale."""
    r = np.sqrt(squares + 1e-16)
    decay = np.exp(-ROOT5 * r)
    slope = (1 + ROOT5 * r) * decay
    return np.asarray(slope + 5 / 3 * squares * decay), np.asarray(5 / 3 * slope)
