"""Who times holds the device, also where nothing can be written."""

import fcntl
import os

import pytest

from tunewright.stores.file_lock import exclusive_lock


def test_where_no_file_can_be_made_the_nearest_folder_is_held_instead(tmp_path) -> None:
    (tmp_path / "file").touch()
    with exclusive_lock(tmp_path / "file" / "leases" / "cpu.lock"):
        other = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
