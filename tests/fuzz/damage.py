"""Damage: sound bytes and sound JSON, spoilt in ways that real files are and that attackers choose."""

import json
import tempfile
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SCRAPS = [
    b'"', b"[", b"]", b"{", b"}", b",", b":", b"1e999", b"-1", b"NaN", b"Infinity", b"null", b"\\ud800", b"\\u0000",
    b"\r", b"\n", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"9" * 400, b"[" * 3000, b"../../x", b"=", b"#",
]  # fmt: skip

NASTY = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**64), 10**30, 10**400, 0.0, -0.0, 0.5, 1e308,
    5e-324, float("nan"), float("inf"), float("-inf"), "", " ", "8", "08", "-8", "1_0", "x", "\ud800", "a\0b", "\x1b[",
    "../../x", "/etc/passwd", "lambda", "variant", "x" * 3000, "٣", [], {}, [[]], [None], [{}], {"": None}, {"x": {}},
    [1] * 300,
]  # fmt: skip

VALUES = st.recursive(
    st.sampled_from(NASTY) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def effort(times: int = 1):
    """How hard to try: so many times what the profile says."""
    most = times * settings.default.max_examples
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bent(whole: bytes):
    """Sound bytes with some of them gone, doubled, or others in their place; or any bytes at all."""
    places = st.integers(0, len(whole))
    edit = st.tuples(places, st.integers(0, 12), st.binary(max_size=8) | st.sampled_from(SCRAPS))

    def apply(edits):
        text = whole
        for place, length, instead in edits:
            text = text[:place] + instead + text[place + length :]
        return text

    return (
        st.lists(edit, min_size=1, max_size=4).map(apply) | places.map(lambda at: whole[:at]) | st.binary(max_size=99)
    )


def places_in(thing, at=()):
    """Every place in a JSON value, the outermost first."""
    yield at
    inner = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for name, part in inner:
        yield from places_in(part, (*at, name))


@st.composite
def twisted(draw, whole):
    """A sound JSON value with some of its parts exchanged, gone, or by another name; as bytes."""
    thing = json.loads(json.dumps(whole))
    for _ in range(draw(st.integers(1, 3))):
        *outer, last = draw(st.sampled_from([at for at in places_in(thing) if at] or [("",)]))
        if not isinstance(thing, dict | list) or (outer, last) == ([], ""):
            break
        inside = thing
        for name in outer:
            inside = inside[name]
        what = draw(st.sampled_from(["other", "other", "gone", "renamed"]))
        other_name = st.text(max_size=4) | st.sampled_from(["variant", "class", "\ud800", "x" * 3000, "8 "])
        if what == "gone":
            del inside[last]
        elif what == "renamed" and isinstance(inside, dict):
            inside[draw(other_name)] = inside.pop(last)
        else:
            inside[last] = deepcopy(draw(VALUES))
    return json.dumps(thing, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


def spoilt(whole):
    """A sound JSON value, spoilt as bytes or as a value."""
    return twisted(whole) | bent(json.dumps(whole).encode())


@contextmanager
def file_of(content: bytes, name: str):
    """A file with this content, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        yield path
