"""Draws what a core's share of lm1b_large's training step takes with --shard_optimizer, against the number of cores."""

import csv
import pathlib

from drawing import FAINT, LIGHT, MEDIUM, STRONG, new_figure, save

TABLE = pathlib.Path(__file__).parents[2] / "evidence" / "compilers" / "many_cores.csv"
PARTS = {"weights_gb": ("weights", STRONG), "moments_gb": ("moments", MEDIUM), "rest_gb": ("temporary", LIGHT)}
GOALS = {"cycles": 45, "memory": 5}
"""At eight cores: millions of cycles, and GB."""


def draw():
    figure, (cycles, memory) = new_figure(4.4, 2)
    with open(TABLE, newline="") as file:
        rows = list(csv.DictReader(file))
    names = [f"{row['cores']}, bf16" if row["sums"] == "bfloat16" else row["cores"] for row in rows]
    bars = cycles.bar(names, [float(row["m_cycles"]) for row in rows], color=STRONG, width=0.6)
    cycles.bar_label(bars, fontsize=9, padding=2)
    below = [0.0] * len(rows)
    for column, (name, colour) in PARTS.items():
        heights = [float(row[column]) for row in rows]
        bars = memory.bar(names, heights, bottom=below, color=colour, width=0.6, label=name)
        below = [sum(pair) for pair in zip(below, heights, strict=True)]
    memory.bar_label(bars, [f"{height:.1f}" for height in below], fontsize=9, padding=2)
    memory.legend(frameon=False, fontsize=9, loc="upper center", ncols=3)
    for axes, goal, title, top in (
        (cycles, GOALS["cycles"], "million cycles per core", 95),
        (memory, GOALS["memory"], "GB per core", 18),
    ):
        axes.axhline(goal, color=FAINT, linestyle="--", linewidth=1, zorder=0)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_ylim(0, top)
        axes.spines[["top", "right"]].set_visible(False)
    memory.set_xlabel("cores; bf16: with --bfloat16_gradients; dashed: the goal for eight", fontsize=9)
    return figure


if __name__ == "__main__":
    save(draw)
