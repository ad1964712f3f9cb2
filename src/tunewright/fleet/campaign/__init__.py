"""A campaign: many kernels, shapes and devices tuned within one budget."""
