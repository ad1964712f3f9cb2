"""Memo: any function that remembers its results, in this process or in a store, beside the decisions."""

from tunewright.fronts.memo.front import memo, persistent_memo

__all__ = ["memo", "persistent_memo"]
