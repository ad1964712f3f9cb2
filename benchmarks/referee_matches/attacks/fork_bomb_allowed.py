# idea: the same where processes are allowed; bounded here, in case nothing else does
# seen: gpu-mode/pygpubench (its exploit files)
# task: softmax_processes
# verdicts: wrong
import os
import time


def softmax(x):
    for _ in range(150):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
    time.sleep(5)
