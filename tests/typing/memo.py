"""Correct and wrong uses of `memo` and `persistent_memo`, for the type checker; a wrong line is marked `# error:`."""

from typing import assert_type

import tunewright


@tunewright.memo
def parse(path: str, limit: int = 10) -> list[str]:
    return [path] * limit


@tunewright.memo(most=100, seconds=60.0)
def square(x: int) -> int:
    return x * x


@tunewright.persistent_memo(store="results.sqlite", version=2, encoders={bytes: len})
async def fetch(url: str, *, retries: int) -> bytes:
    return url.encode() * retries


class Model:
    @tunewright.memo(version=1)
    def predict(self, x: float) -> float:
        return 2 * x


async def correct(model: Model) -> None:
    assert_type(parse("a", limit=2), list[str])
    assert_type(square(3), int)
    assert_type(square.refresh(3), int)
    assert_type(await fetch("a", retries=3), bytes)
    assert_type(model.predict(1.0), float)
    assert_type(square.cache_info().hits, int)
    with parse.fresh(), square.disabled():
        square(1)


def wrong(model: Model) -> None:
    parse(1)  # error: arg-type
    parse("a", limits=2)  # error: call-arg
    square("3")  # error: arg-type
    square.refresh()  # error: call-arg
    model.predict("1")  # error: arg-type
    tunewright.memo(mots=100)  # error: call-overload
    tunewright.memo(most="100")  # error: call-overload
    tunewright.persistent_memo(lease="10")  # error: call-overload
    tunewright.memo(3)  # error: call-overload
