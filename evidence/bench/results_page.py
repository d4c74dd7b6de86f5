"""Makes the tables of docs/results.md, and the README's picture and results, from the files in evidence/results/.

    python evidence/bench/results_page.py

The text is that of evidence/results/page.txt, where `{NAME}` stands for a table. results.py measures a machine;
slow studies have files of their own in evidence/results/studies/.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs" / "figures"))  # drawing: what all pictures share
FOLDER = ROOT / "evidence" / "results"
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "speed.svg"
TEXT = FOLDER / "page.txt"

OURS = {
    "ours_bfloat16": "txl_tf, bfloat16",
    "ours": "txl_tf",
    "tf_models": "tensorflow/models",
    "huggingface": "Hugging Face",
}
TASKS = {
    "Transformer-XL: training": ("train", ()),
    "Transformer-XL: evaluation": ("inference", ("evaluate",)),
    "Transformer-XL: generation": ("inference", ("generate",)),
    "XLNet: pretraining": ("train_xlnet", ()),
    "XLNet: training a classifier, T 128": ("finetune", ("train_128",)),
    "XLNet: training a classifier, T 512": ("finetune", ("train_512",)),
    "XLNet: prediction, T 128": ("finetune", ("predict_128",)),
    "XLNet: prediction, T 512": ("finetune", ("predict_512",)),
}
"""{a task's name on the page: (benchmark, place in its JSON line)}."""
FORMATS = {
    "bfloat16": "bfloat16",
    "float32_int8": "float32, int8 weights",
    "bfloat16_int8": "bfloat16, int8 weights",
}


def write():
    """Writes the page and the picture."""
    from drawing import svg_of

    PAGE.write_text(page())
    README.write_text(readme(README.read_text()))
    PICTURE.write_text(svg_of(drawing(machines()[0])))


def page():
    """The page: its text with all tables."""
    made = {"speed": speed, "formats": formats, "startup": startup, "memory": memory, "sizes": sizes}
    return re.sub(
        r"^{(\w+)}\n", lambda found: made.get(found[1], study)(found[1]), TEXT.read_text(), flags=re.MULTILINE
    )


def readme(text):
    """The README with its table of results."""
    begin, end = "<!-- results, by evidence/bench/results_page.py -->\n\n", "<!-- end of results -->"
    before, _, rest = text.partition(begin)
    return before + begin + highlights() + end + rest.partition(end)[2]


def highlights():
    """The results that a visitor asks for first, each with its place in docs/results.md."""
    machine = machines()[0]

    def times(task, peer):
        """How many times as fast as a peer in a task, both in float32."""
        speeds, _ = rates(machine, task)
        return f"{speeds['ours'] / speeds[peer]:.2g}"

    def both(task):
        """Those of both peers; one number if they are the same."""
        return " and ".join(dict.fromkeys(times(task, peer) for peer in ("tf_models", "huggingface"))) + " times"

    def first(study):
        return json.loads((FOLDER / "studies" / f"{study}.json").read_text())["measured"][0]

    learned, on_gpu, kills = first("learning"), first("gpu"), first("reliability")
    training = f"{both('Transformer-XL: training')} as fast as tensorflow/models and Hugging Face"
    training += f" ({machine['machine']})"
    reading = f"evaluation {both('Transformer-XL: evaluation')}, generation {both('Transformer-XL: generation')}"
    rows = [
        [
            "How well does it learn?",
            f"{learned['txl_tf']} bits per byte of enwik8 after 1,500 steps; {learned['beside it']}",
            "learning",
        ],
        ["How fast does it train?", training, "speed"],
        ["How fast does it read and write?", f"{reading} as fast as these, with the same loss and text", "speed"],
        ["How fast is XLNet?", f"it pretrains {both('XLNet: pretraining')} as fast as these", "speed"],
        ["How fast is a GPU?", f"an H100 trains enwik8_base with {on_gpu['measured']}", "on-a-gpu"],
        ["Can a run be lost?", f"{kills['tried']} with kill -9: {kills['wrong']}, bit for bit", "reliability"],
    ]
    return table(
        ["question", "answer", "more"], [[*row, f"[results](docs/results.md#{place})"] for *row, place in rows]
    )


def machines():
    """The content of each machine's file, the latest measured first."""
    found = [json.loads(path.read_text()) for path in FOLDER.glob("*.json")]
    return sorted(found, key=lambda one: (max(part["date"] for part in one["measured"].values()), one["machine"]))[::-1]


def measured(machine, name):
    """The entry of a benchmark on a machine; None if it was not measured there."""
    return machine["measured"].get(name)


def rates(machine, task):
    """({implementation: tokens/s}, share of the limit or None) of a task; None: not measured there."""
    name, place = TASKS[task]
    entry = measured(machine, name)
    if entry is None:
        return None
    part = entry["result"]
    for key in place:
        part = part[key]
    share = part.get("share_of_limit") or part.get("share_of_matmul", {}).get("ours")
    return part["tokens_per_sec"], share


def speed(_):
    """Tokens per second beside the peers, a row for each machine and task."""
    rows = []
    for machine in machines():
        for task, (name, _) in TASKS.items():
            found = rates(machine, task)
            if found and "T 512" not in task and set(found[0]) & {"tf_models", "huggingface"}:
                speeds, share = found
                cells = [number(speeds.get(one)) for one in OURS]
                rows.append([where(machine, name), task, *cells, percent(share)])
    return table(["machine", "task, in tokens/s", *OURS.values(), "share of the limit"], rows)


def formats(_):
    """Generation by the format of numbers beside float32, a row for each machine and number of texts."""
    rows = []
    for machine in machines():
        if entry := measured(machine, "generate"):
            for texts in (1, 16):
                times = entry["result"][f"batch {texts}"]["over_float32"]
                rows.append([where(machine, "generate"), texts, *(times[name] for name in FORMATS)])
    return table(["machine", "texts", *FORMATS.values()], rows)


def startup(_):
    """Seconds to the first result, without a cache of programs and with a full one."""
    rows = []
    for machine in machines():
        if entry := measured(machine, "startup"):
            result = entry["result"]
            firsts = ("training step", "evaluated token", "generated token")
            cells = [f"{result[f'{name}, uncached']}; {result[f'{name}, warm']}" for name in firsts]
            rows.append([where(machine, "startup"), *cells, result["import tensorflow"]])
    return table(["machine", "training step", "evaluated token", "generated token", "`import tensorflow` alone"], rows)


def memory(_):
    """Peak resident memory in GB, for tasks with a peer, on the machine that was measured last."""
    names = {(benchmark, *(place or ("train",))): task for task, (benchmark, place) in TASKS.items()}
    rows, machine = [], machines()[0]
    for name, entry in machine["measured"].items():
        for task, peaks in entry["result"].get("peak_gbytes", {}).items():
            if set(peaks) & {"tf_models", "huggingface"} and "512" not in task:
                what = names.get((name, task)) or size(entry)
                cells = [f"{peaks[one]:.2f}" if one in peaks else "" for one in OURS]
                rows.append([where(machine, name), what, *cells])
    return table(["machine", "task", *OURS.values()], rows)


def size(entry):
    """The size that a benchmark of training was run at."""
    values = entry["result"]["size"]
    return ", ".join(f"{key} {values[key]:,}" for key in ("n_layer", "d_model", "batch_size", "tgt_len", "mem_len"))


def sizes(_):
    """Training at sizes that nothing was tuned for, on the machine that was measured last."""
    rows, machine = [], machines()[0]
    for name in ("train_narrow", "train_wide", "train_large_batch"):
        if entry := measured(machine, name):
            result = entry["result"]
            shares = [percent(result["share_of_matmul"][one]) for one in ("ours", "ours_bfloat16")]
            speeds = [number(result["tokens_per_sec"].get(one)) for one in OURS]
            rows.append([where(machine, name), size(entry), *speeds, *shares])
    return table(["machine", "size", *OURS.values(), "share of matmul", "in bfloat16"], rows)


def study(name):
    """The table of evidence/results/studies/NAME.json, with its own text."""
    content = json.loads((FOLDER / "studies" / f"{name}.json").read_text())
    rows = content["measured"]
    about = [content["machine"], *(content[key] for key in ("date",) if key in content)]
    about += [f"commit {content['commit']}"] if "commit" in content else []
    about += [f"`{content['command']}`"] if "command" in content else []
    return f"{', '.join(about)}:\n\n" + table(list(rows[0]), [[number(cell) for cell in row.values()] for row in rows])


def where(machine, name):
    """The machine, with the date and commit of a benchmark."""
    entry = measured(machine, name)
    return f"{machine['machine']} ({entry['date']}, {entry['commit']})"


def number(value):
    """A cell: a number with separators of thousands, or the value itself."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) or value < 100 else f"{value:,.0f}"


def percent(share):
    """A cell: a share in percent; empty for None."""
    return "" if share is None else f"{100 * share:.0f} %"


def table(head, rows):
    """A table in Markdown; without rows, a sentence."""
    if not rows:
        return "Not measured yet; `make results` does it.\n"
    lines = [head, ["-"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def drawing(machine):
    """A figure of one machine's speeds, a panel for each task, two side by side."""
    from drawing import new_figure
    from matplotlib.patches import Patch

    tasks = [task for task in TASKS if rates(machine, task) and "T 512" not in task]
    rows = -(-len(tasks) // 2)
    figure, grid = new_figure(1.15 * rows + 0.8, rows, ncols=2, squeeze=False)
    for axes in grid.flat[len(tasks) :]:
        axes.set_visible(False)
    for axes, task in zip(grid.flat, tasks, strict=False):
        speeds, _ = rates(machine, task)
        draw_panel(axes, task, {name: speeds[key] for key, name in OURS.items() if key in speeds})
    names = [Patch(color=colour, label=name) for name, colour in colours().items()]
    figure.legend(handles=names, loc="outside upper left", ncols=2)
    commits = sorted({machine["measured"][TASKS[task][0]]["commit"] for task in tasks})
    where = f"{machine['cores']} cores of {machine['machine']}, commit {', '.join(commits)}"
    figure.supxlabel(f"tokens per second, float32 unless stated\n{where}", fontsize=9)
    return figure


def colours():
    """The colour of each implementation."""
    from drawing import FAINT, MEDIUM, OTHER, STRONG

    return dict(zip(OURS.values(), (MEDIUM, STRONG, OTHER, FAINT), strict=True))


def draw_panel(axes, title, speeds):
    """Draws a bar for each implementation, with its value."""
    drawn = axes.barh(list(speeds), list(speeds.values()), color=[colours()[name] for name in speeds], height=0.76)
    axes.bar_label(drawn, [number(float(speed)) for speed in speeds.values()], padding=3, fontsize=9)
    axes.set_title(title.replace(": ", "\n"))
    axes.set_xlim(0, max(speeds.values()) * 1.3)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_ylim(3.6, -0.6)  # bars of all panels have the same height
    axes.spines[["top", "right", "bottom"]].set_visible(False)


if __name__ == "__main__":
    write()
