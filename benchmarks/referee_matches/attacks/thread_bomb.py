# idea: thousands of threads; bounded here, in case nothing else does
# seen: a variant of the fork bomb
# verdicts: wrong
import threading
import time

import numpy as np


def softmax(x):
    for _ in range(3000):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    return np.zeros_like(x)
