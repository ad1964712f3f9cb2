"""Shared by all examples: where their pictures are saved, and how they look."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams |= {
    "svg.fonttype": "none",
    "svg.hashsalt": "gallery",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}

import matplotlib.pyplot as plt

LEAF, WARM, GREY, DEEP = "#00897b", "#ff7043", "#b0bec5", "#1e3a8a"


def place(script):
    """Returns the path of a script's picture: in the folder given as its argument, else in the current one."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    return folder / Path(script).with_suffix(".svg").name


def blank(title, wide=5.6, high=3.4):
    """Returns a figure with one pair of axes."""
    figure, axes = plt.subplots(figsize=(wide, high), layout="constrained")
    axes.set_title(title, fontsize=10)
    return figure, axes


def keep(figure, script):
    """Writes the picture; equal figures give equal bytes."""
    figure.savefig(place(script), metadata={"Date": None})
    print("picture:", place(script).name)
