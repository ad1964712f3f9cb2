"""Inductor: what of PyTorch's compiler is not public, behind one door."""
