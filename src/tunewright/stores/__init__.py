"""Places where decisions and trials are kept."""
