"""What a kernel is tried on and judged by."""
