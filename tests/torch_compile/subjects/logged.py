"""A logger inside the model."""

import logging

import torch

log = logging.getLogger(__name__)


def broken(x):
    x = x * 2
    log.warning("scaled")  # planted: print
    return x + 1


def mended(x):
    x = x * 2
    if not torch.compiler.is_compiling():
        log.warning("scaled")
    return x + 1


def make():
    log.disabled = True
    return broken, (torch.ones(8),)


def healed():
    log.disabled = True
    return mended, (torch.ones(8),)
