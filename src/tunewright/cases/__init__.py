"""Test cases: example inputs, expected results and tolerances."""
