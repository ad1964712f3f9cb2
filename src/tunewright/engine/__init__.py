"""The search: loop, budget, journal, stopping rule and decision."""
