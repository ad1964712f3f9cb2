"""Many kernels, shapes and devices: campaigns, and a pool on Ray."""
