"""Measurement: clocks, races, evaluation of configs, and noise of the machine."""
