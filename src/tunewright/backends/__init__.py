"""Ways to build, load and time a kernel."""
