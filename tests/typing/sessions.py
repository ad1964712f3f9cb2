"""Sessions and settings."""

from pathlib import Path

import tunewright as tw
from tunewright.settings import Mode, Settings

tw.configure(mode="frozen", store="decisions.sqlite", trials=100)
tw.configure(mode=Mode.TUNE, cache=Path("cache"), features={"flights": False})
tw.Session(store=Path("decisions.sqlite"), pool="serial", min_expected_gain=0.0, tuning_wait_seconds=60)
tw.Session(Settings(trials=3), listeners=[lambda event: None])
counted: int = tw.current_session().counts["exact"]

tw.configure(mode="fast")  # error: no such mode
tw.configure(trails=100)  # error: misspelled setting
tw.configure(trials="many")  # error: wrong type
tw.Session(modes="frozen")  # error: misspelled setting
tw.Session(deterministic=1.5)  # error: wrong type
tw.Session("frozen")  # error: settings are not text
tw.Session(store=3)  # error: not a store
