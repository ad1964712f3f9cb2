"""Private parts of PyTorch's compiler, behind one adapter."""
