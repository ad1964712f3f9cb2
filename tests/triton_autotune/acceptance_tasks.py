"""What processes of the acceptance kit do in its tests; it imports little, so that they start fast."""

import os
import signal


def failing_stage(device, notes):
    """A stage that notes a figure, and then fails."""
    notes.figures["before"] = 1
    raise RuntimeError("CUDA error: unspecified launch failure")


def ends_its_process(device):
    """Is done by a child, which it ends."""
    os.abort()


def never_ends(device):
    """Is done by a child, which waits for ever."""
    signal.pause()


def answers(device, question):
    """Is done by a child."""
    return {"question": question, "written": os.write(1, b"hello"), "process": os.getpid()}
