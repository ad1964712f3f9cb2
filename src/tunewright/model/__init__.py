"""Values: no I/O, no clocks, no threads."""
