"""Times that the model predicts where a config was not tried, as far as it may serve there.

When many shapes are tuned together, each has few trials. A config that was verified on one shape of a bucket may serve
all shapes of it, so a cover and a rule need to know how fast it is on the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tunewright.shapes.joint_model import JointModel
from tunewright.shapes.table import ShapeTable

MOST_TIMES = 100_000
"""Times that are predicted at most, which takes half a minute; for the lighter shapes none are."""


def with_estimates(table: ShapeTable, most: int = MOST_TIMES) -> ShapeTable:
    """Returns the table with predicted times of configs that were verified on the bucket of a shape, but not on it.

    Shapes that were not tried stay as they are, and so does everything if too little was tried for a model.
    """
    wanted = table.verified_on_bucket & np.isnan(table.seconds)
    wanted[~table.works.any(axis=1)] = False
    heaviest = np.argsort(-table.weights, kind="stable")
    wanted[heaviest[most // len(table.configs) :]] = False
    if not wanted.any() or not table.tuned:
        return table
    model, seconds = JointModel(table), table.seconds.copy()
    errors = np.zeros_like(seconds) if table.errors is None else table.errors.copy()
    for shape in np.flatnonzero(wanted.any(axis=1)).tolist():
        logs, variance = model.foresee(shape)
        configs = np.flatnonzero(wanted[shape])
        seconds[shape, configs], errors[shape, configs] = np.exp(logs[configs]), np.sqrt(variance[configs])
    return replace(table, seconds=seconds, errors=errors, estimated=wanted)
