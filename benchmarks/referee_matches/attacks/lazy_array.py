# idea: an array that computes only when somebody looks at its elements
# seen: deep-reinforce.com on CUDA-L1 (lazy tensors)
# verdicts: wrong
import numpy as np


class Lazy(np.ndarray):
    def __getitem__(self, where):
        e = np.exp(self.source - self.source.max(axis=1, keepdims=True))
        return (e / e.sum(axis=1, keepdims=True))[where]


def softmax(x):
    lazy = np.zeros_like(x).view(Lazy)
    lazy.source = x
    return lazy
