"""Draws the picture of the README from a table of measured speeds: a panel for each task.

python bench/draw_speed.py --table=docs/speed.csv --out=docs/speed.png
"""

import argparse
import csv

COLOURS = {
    "txl_tf, bfloat16": "#f0a35e",
    "txl_tf": "#d9480f",
    "tensorflow/models": "#868e96",
    "Hugging Face": "#adb5bd",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="docs/speed.csv", help="model, task, implementation, speed, machine")
    parser.add_argument("--out", default="docs/speed.png", help="the picture")
    args = parser.parse_args()
    with open(args.table, newline="") as file:
        rows = list(csv.DictReader(file))
    drawing(rows).savefig(args.out, dpi=150)


def drawing(rows):
    """A figure of the rows of the table, with a row of panels for each model."""
    from matplotlib.figure import Figure

    models = {}
    for row in rows:
        models.setdefault(row["model"], {}).setdefault(row["task"], []).append(row)
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    grid = figure.subplots(len(models), max(map(len, models.values())))
    for panels, (model, tasks) in zip(grid, models.items(), strict=True):
        for axes, (task, bars) in zip(panels, tasks.items(), strict=True):
            draw_panel(axes, f"{model}: {task}", bars)
    machines = ", ".join(f"{model} on {next(iter(tasks.values()))[0]['machine']}" for model, tasks in models.items())
    figure.supxlabel(f"tokens per second, float32 unless stated; 2 CPU cores ({machines})", fontsize=9, color="#495057")
    return figure


def draw_panel(axes, title, bars):
    """Draws bars with their values and names."""
    names = [bar["implementation"] for bar in bars]
    speeds = [float(bar["tokens_per_second"]) for bar in bars]
    drawn = axes.barh(names, speeds, color=[COLOURS[name] for name in names], height=0.72)
    axes.bar_label(
        drawn, [f"{speed:,.0f}" if speed >= 100 else f"{speed:,.1f}" for speed in speeds], padding=3, fontsize=9
    )
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlim(0, max(speeds) * 1.22)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.set_ylim(3.6, -0.6)  # bars of all panels have the same height
    axes.spines[["top", "right", "bottom"]].set_visible(False)


if __name__ == "__main__":
    main()
