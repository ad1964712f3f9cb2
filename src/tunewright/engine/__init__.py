"""The loop that turns a problem into a decision."""
