"""A space and its rules: which register blocks fit a processor, and why the others do not."""

from easel import GREY, LEAF, WARM, blank, keep

import tunewright as tw

space = tw.Space(
    tw.Knob("rows", range(1, 17)),
    tw.Knob("vectors", range(1, 9)),
    rules=[
        tw.Rule("32 registers hold the sums and what feeds them", lambda rows, vectors: rows * vectors + vectors < 32),
        tw.Rule("a block this small waits for every load", lambda rows, vectors: rows * vectors >= 6),
    ],
)

if __name__ == "__main__":
    figure, axes = blank(f"{len(space)} of {16 * 8} blocks are worth trying")
    colors = {rule.reason: color for rule, color in zip(space.rules, (WARM, GREY), strict=True)}
    for rows in space.knobs[0].values:
        for vectors in space.knobs[1].values:
            said = space.objections({"rows": rows, "vectors": vectors})
            axes.scatter(rows, vectors, marker="s", s=90, color=colors[said[0]] if said else LEAF)
    for reason, color in {"in the space": LEAF, **colors}.items():
        axes.scatter([], [], marker="s", color=color, label=reason)
    axes.set(xlabel="rows", ylabel="vectors", ylim=(0.3, 11.5))
    axes.legend(loc="upper left", fontsize=8)
    print(len(space), "configs;", "14 x 4 is refused:", space.objections({"rows": 14, "vectors": 4})[0])
    keep(figure, __file__)
