"""For models that `torch.compile` compiles: what is slow about them, and why."""
