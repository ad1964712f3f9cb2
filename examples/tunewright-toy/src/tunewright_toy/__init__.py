"""A simulated vector machine for Tunewright."""
