"""Memoization: functions that remember their results in this process or in a store."""

from tunewright.memoization.decorator import memo, persistent_memo

__all__ = ["memo", "persistent_memo"]
