"""One kernel over many shapes: which to tune, few configs for all of them, and rules that choose between these."""
