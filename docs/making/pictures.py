"""Pictures: the drawings of the concepts, made anew by `python docs/making/pictures.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from xml.sax.saxutils import escape

INK, PALE, WARM, LEAF, GREY = "#263238", "#e0f2f1", "#ff7043", "#00897b", "#90a4ae"


class Drawing:
    """A picture of boxes, arrows and words, gathered part by part."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height, self.parts = width, height, list[str]()

    def box(self, x: int, y: int, width: int, height: int, *lines: str, fill: str = PALE) -> None:
        """A box with words in its middle, the first line bold."""
        self.bar(x, y, width, height, f'rx="6" fill="{fill}" stroke="{LEAF}"')
        top = y + height / 2 - 8 * (len(lines) - 1)
        for i, line in enumerate(lines):
            self.words(x + width // 2, int(top + 16 * i + 4), line, bold=i == 0, size=13 if i == 0 else 11)

    def bar(self, x: float, y: float, width: float, height: float, look: str) -> None:
        """A rectangle of a colour, or with a look of its own."""
        look = look if "=" in look else f'rx="1" fill="{look}"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {look}/>')

    def words(self, x: int, y: int, text: str, *, bold: bool = False, size: int = 12, at: str = "middle") -> None:
        """A line of text."""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{at}"{weight} fill="{INK}">{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[int, int], says: str = "") -> None:
        """A line through some points, with a head at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{INK}" marker-end="url(#head)"/>')
        if says:
            (x0, y0), (x1, y1) = points[0], points[1]
            self.words((x0 + x1) // 2, (y0 + y1) // 2 - 6, says, size=11)

    def __str__(self) -> str:
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="sans-serif"><defs>{head}</defs>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def tuning() -> Drawing:
    """From a call to a decision."""
    d = Drawing(760, 250)
    d.box(10, 20, 120, 56, "your call", "gemm(a, b, c)")
    d.box(190, 20, 130, 56, "key", "what must be equal")
    d.box(380, 20, 130, 56, "store", "decided already?")
    d.box(610, 20, 140, 56, "launch", "a dictionary look-up")
    d.arrow((130, 48), (190, 48))
    d.arrow((320, 48), (380, 48))
    d.arrow((510, 48), (610, 48), says="yes")
    d.box(10, 150, 140, 70, "strategy", "proposes configs", "of the space")
    d.box(200, 150, 150, 70, "worker", "build, verify, time", "deadline, memory limit")
    d.box(400, 150, 140, 70, "race", "the best few and", "the default, in turns")
    d.box(590, 150, 160, 70, "decision", "config, gain, interval,", "ties, conditions")
    d.arrow((445, 76), (445, 112), (80, 112), (80, 150))
    d.words(262, 106, "no, and the mode is tune", size=11)
    d.arrow((150, 175), (200, 175))
    d.arrow((200, 200), (150, 200))
    d.arrow((350, 185), (400, 185))
    d.arrow((540, 185), (590, 185))
    d.arrow((680, 150), (680, 76))
    d.words(690, 116, "kept", size=11, at="start")
    return d


def racing() -> Drawing:
    """Blocks and rounds, on a machine that becomes slower."""
    d = Drawing(760, 250)
    for top, title in (
        (18, "one after another: B is the fastest, and seems the slowest"),
        (138, "a race: who is compared runs in the same moments"),
    ):
        d.words(10, top, title, bold=True, size=13, at="start")
        d.bar(380, top + 10, 370, 76, "#fbe9e7")
        d.words(565, top + 24, "the machine is slow now", size=11)
    colours = {"A": LEAF, "B": WARM, "C": GREY}
    x = 10.0
    for name, times in (("A", 10), ("C", 5), ("B", 10)):
        for _ in range(times):
            wide = {"A": 20, "B": 18, "C": 32}[name] * (1.8 if x > 360 else 1)
            d.bar(x, 60, wide - 2, 34, colours[name])
            x += wide
    x, rng = 10.0, Random(3)
    while x < 740:
        for name in rng.sample("ABC", 3) if x < 300 else rng.sample("AB", 2):
            wide = {"A": 20, "B": 18, "C": 32}[name] * (1.8 if x > 380 else 1)
            if x + wide < 752:
                d.bar(x, 180, wide - 2, 34, colours[name])
            x += wide
        x += 5
    for i, (name, says) in enumerate({"A": "A", "B": "B, the fastest", "C": "C, out after some rounds"}.items()):
        d.bar(10 + 150 * i, 228, 12, 12, colours[name])
        d.words(28 + 150 * i, 239, says, size=11, at="start")
    return d


def answers() -> Drawing:
    """What a key is made of, and what answers it."""
    d = Drawing(760, 330)
    d.words(10, 22, "A key", bold=True, size=14, at="start")
    fields = [
        ("kernel", "gemm"),
        ("source", "without comments"),
        ("arguments", "dtypes, layouts, sizes"),
        ("device", "model, features, limits"),
        ("toolchain", "compiler, flags"),
        ("mode", "threads, regime"),
    ]
    for i, (name, says) in enumerate(fields):
        d.box(10, 34 + 48 * i, 210, 42, name, says)
    d.words(330, 22, "Answers, nearest first", bold=True, size=14, at="start")
    tiers = [
        ("exact", "this key"),
        ("alias", "the same device under another name"),
        ("bucket", "the bucket its sizes fall into"),
        ("nearest shape", "other sizes on this device"),
        ("architecture", "another device like it"),
        ("default", "nothing is decided"),
    ]
    for i, (name, says) in enumerate(tiers):
        d.box(330, 34 + 48 * i, 260, 42, name, says, fill=PALE if i < 3 else "#fff3e0")
        if i:
            d.arrow((460, 28 + 48 * i), (460, 34 + 48 * i))
    d.arrow((220, 175), (280, 175), (280, 55), (330, 55))
    d.words(600, 96, "answers the question:", size=11, at="start")
    d.words(600, 112, "modes tune and strict", size=11, at="start")
    d.words(600, 240, "serves until it is tuned:", size=11, at="start")
    d.words(600, 256, "modes frozen and record", size=11, at="start")
    return d


def shipping() -> Drawing:
    """From what production asks for to what it gets."""
    d = Drawing(760, 130)
    steps = [
        ("record", "production notes", "what is missing"),
        ("tune", "what costs most", "first"),
        ("bundle", "decisions, builds,", "races; signed"),
        ("verify", "on the target:", "a sample raced again"),
        ("frozen", "no compiler,", "no measurement"),
    ]
    for i, (name, *says) in enumerate(steps):
        d.box(10 + 150 * i, 20, 130, 76, name, *says)
        if i:
            d.arrow((150 * i - 10, 58), (10 + 150 * i, 58))
    d.arrow((685, 96), (685, 118), (75, 118), (75, 96))
    return d


PICTURES = {"tuning": tuning, "racing": racing, "answers": answers, "shipping": shipping}


def main() -> None:
    """Write all of them, or say which differ from what is kept (`--check`)."""
    folder = Path(__file__).resolve().parents[1] / "pictures"
    for name, draw in PICTURES.items():
        path, text = folder / f"{name}.svg", str(draw())
        if "--check" in sys.argv:
            if path.read_text() != text:
                sys.exit(f"{path.name} is not what the script draws; run: python docs/making/pictures.py")
        else:
            path.write_text(text)


if __name__ == "__main__":
    main()
