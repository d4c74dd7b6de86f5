"""The tables of a visit to a GPU, from its results. Not a script."""

SPEEDS = {
    "tokens_per_sec": "tokens/s",
    "examples_per_sec": "texts/s",
    "texts_per_sec": "texts/s",
    "ms_per_token": "ms a token",
}
AGREEMENT = "agreement: "


def page(lines, commits):
    """Markdown.

    Args:
        lines: the results, each with "what" and "commit"; of those with both alike the last one counts.
        commits: the one that is measured, and the one before it or none.
    """
    found = {(line["what"], line["commit"]): line for line in lines if "error" not in line}
    failed = [line for line in lines if "error" in line and (line["what"], line["commit"]) not in found]
    peak = found.get(("products of matrices", commits[0]), {})
    rates = peak.get("tflops", {})
    parts = ["# A visit to a GPU"]
    if peak:
        told = ", ".join(f"{dtype} {rate:,.3g}" for dtype, rate in rates.items())
        parts.append(f"{peak['device']}, TensorFlow {peak['tensorflow']}; products of matrices, TFLOP/s: {told}.")
    names = dict.fromkeys(what for what, _ in found)
    heads = ["what", *commits, *(["ratio"] if len(commits) > 1 else []), "share of the products' rate"]
    parts.append(table(heads, [row for name in names if (row := speed_row(name, found, commits, rates))]))
    heads = ["first loop of train.py, seconds", *commits]
    firsts = {name: [found.get((name, commit), {}).get("first_loop_seconds") for commit in commits] for name in names}
    parts.append(table(heads, [[name, *cells] for name, cells in firsts.items() if any(cells)]))
    for line in found.values():
        for task, speeds in line.get("beside", {}).items():
            parts.append(
                f"{line['what']}, {task}, tokens/s: " + ", ".join(f"{name} {speeds[name]:,}" for name in speeds)
            )
    if rows := agreement(found, commits[0]):
        parts.append("Largest difference to the CPU, to float32 in training, as a part of the CPU's number:")
        parts.append(table(["what", "losses", "gradient norms", "probabilities"], rows))
    parts += [f"Failed: {line['what']}, {line['commit']}: {line['error']}" for line in failed]
    return "\n\n".join(filter(None, parts)) + "\n"


def speed_row(name, found, commits, rates):
    """A row of the first table; None if it has no speed."""
    here = [found.get((name, commit), {}) for commit in commits]
    key = next((key for key in SPEEDS if any(key in one for one in here)), None)
    if key is None or name.startswith(AGREEMENT):
        return None
    values = [one.get(key) for one in here]
    cells = ["" if value is None else f"{value:,g} {SPEEDS[key]}" for value in values]
    if len(values) > 1:
        cells.append(ratio(*values, inverse=key == "ms_per_token"))
    flops, rate = here[0].get("flops_per_token"), rates.get(format_of(name))
    return [name, *cells, f"{values[0] * flops / rate / 1e12:.1%}" if values[0] and flops and rate else ""]


def ratio(now, before, inverse):
    """How many times as fast `now` is."""
    if not now or not before:
        return ""
    return f"{before / now if inverse else now / before:.2f}"


def format_of(name):
    """The dtype that a measurement's name has at its end or in it; float32 without one."""
    return next((dtype for dtype in ("bfloat16", "float16") if dtype in name), "float32")


def agreement(found, commit):
    """The rows of the table of agreement."""
    here = {
        what.removeprefix(AGREEMENT): line for (what, of), line in found.items() if of == commit and AGREEMENT in what
    }
    rows = []
    reference = here.get("on the CPU")
    for what, line in here.items():
        if reference and what != "on the CPU" and "losses" in line:
            differences = [largest(line[key], reference[key]) for key in ("losses", "grad_norms")]
            rows.append([what, *(f"{one:.1e}" for one in differences), ""])
    usual, on_cpu = found.get(("XLNet prediction", commit)), here.get("prediction on the CPU")
    if usual and on_cpu:
        rows.append(["XLNet prediction", "", "", f"{largest(usual['probabilities'], on_cpu['probabilities']):.1e}"])
    return rows


def largest(values, others):
    """The largest difference, as a part of the other number."""
    return max(abs(a - b) / abs(b) for a, b in zip(values, others, strict=True))


def table(head, rows):
    """A table in Markdown; "" without rows."""
    lines = [head, ["---"] * len(head), *([cell or "" for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) if rows else ""
