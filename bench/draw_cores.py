"""Draws a training step's memory and cycles on one core against the number of cores, from a table.

python bench/draw_cores.py --table=tpu/cores.csv --out=tpu/cores.svg
"""

import argparse
import csv

PANELS = {"m_cycles": "M cycles (without collectives)", "hbm_gb": "GB of HBM"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="tpu/cores.csv", help="step, optimizer, cores, m_cycles, hbm_gb")
    parser.add_argument("--out", default="tpu/cores.svg", help="the picture")
    args = parser.parse_args()
    with open(args.table, newline="") as file:
        rows = list(csv.DictReader(file))
    drawing(rows).savefig(args.out, metadata={"Date": None})  # so that the same table gives the same file


def drawing(rows):
    """A figure of the rows: a panel for each measure, in it a line for each way to keep the optimizer's state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, (column, unit) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for name in dict.fromkeys(row["optimizer"] for row in rows):
            own = [row for row in rows if row["optimizer"] == name]
            axes.plot([int(row["cores"]) for row in own], [float(row[column]) for row in own], marker="o", label=name)
        cores = sorted({int(row["cores"]) for row in rows})
        axes.set_xscale("log", base=2)
        axes.set_xticks(cores, cores)
        axes.set_ylim(0)
        axes.set_xlabel("cores")
        axes.set_title(f"{rows[0]['step']}: {unit}", fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


if __name__ == "__main__":
    main()
