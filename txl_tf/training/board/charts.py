"""The layout of TensorBoard's tab CUSTOM SCALARS: which curves are drawn in one chart, and the charts' titles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Charts = Mapping[str, Mapping[str, str]]
"""{title of a section: {title of a chart: regular expression of the names of its curves}}."""

TITLES = {
    "optimizer/lr": "learning rate",
    "optimizer/grad_norm": "norm of the gradient",
    "optimizer/update_ratio": "norm of an update, relative to the weights",
    "optimizer/param_norm": "norm of the weights",
    "optimizer/skipped": "updates skipped in a log window",
    "speed/tokens_per_sec": "tokens per second",
    "speed/mfu": "share of the peak FLOP/s",
    "speed/epoch": "how often the data was read",
}
"""The charts of single curves, by the name of the curve: a group, and a field of metrics.jsonl."""

SCALING_TITLES = {
    "optimizer/loss_scale": "loss scale",
    "optimizer/overflows": "updates skipped for the loss scale in a log window",
}
"""The charts of runs in float16."""


def layout(losses: Iterable[str], metrics: bool, breakdowns: Iterable[str], scaled: bool = False) -> Charts:
    """The charts of a run.

    Args:
        losses: names of the curves of the loss on train; those on valid end in _valid.
        metrics: whether evaluations have metrics, which share a chart.
        breakdowns: properties of targets by which evaluations report the loss; the parts of each share a chart.
        scaled: whether there is a loss scale.
    """
    charts: dict[str, dict[str, str]] = {
        "loss": {
            f"{name.partition('/')[2].replace('_', ' ')}, train and valid": _only(name, "(_valid)?") for name in losses
        }
    }
    charts["loss"] |= {f"loss on valid by {name}": f"loss_by_{name}/" for name in breakdowns}
    if metrics:
        charts["loss"]["metrics on dev"] = "metrics/"
    for name, title in (TITLES | (SCALING_TITLES if scaled else {})).items():
        charts.setdefault(name.partition("/")[0], {})[title] = _only(name)
    return charts


def layout_summary(charts: Charts) -> bytes:
    """Charts as the summary that TensorBoard reads."""
    from tensorboard.plugins.custom_scalar import layout_pb2, summary  # here, since few parts of a run need it

    sections = []
    for title, of_section in charts.items():
        found = [
            layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=[tags]))
            for name, tags in of_section.items()
        ]
        sections.append(layout_pb2.Category(title=title, chart=found))
    return summary.pb(layout_pb2.Layout(category=sections)).SerializeToString()


def _only(name: str, end: str = "") -> str:
    return f"{re.escape(name)}{end}$"
