"""Reports training: lines on the terminal, metrics.jsonl, TensorBoard."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.runs.model_dir import METRICS_FILE
from txl_tf.runs.parameters import parameter_table
from txl_tf.settings.run import Config
from txl_tf.training.board.charts import SCALING_TITLES, TITLES, Charts, layout
from txl_tf.training.board.event_files import Board, setting_values
from txl_tf.training.board.json_log import JsonLog
from txl_tf.training.board.pictures import bins_picture


def bits_or_perplexity(loss: float, unit: str) -> tuple[str, float]:
    """The usual measure for a unit of text: ("bpc", loss / ln 2) for bytes and characters, else ("ppl", exp(loss))."""
    if unit in ("byte", "char"):
        return "bpc", loss / math.log(2)
    return "ppl", math.exp(min(loss, 700.0))  # exp would overflow; a diverged run must still report its loss


class LogWindow(NamedTuple):
    """The measurements between two lines of metrics.jsonl.

    loss, grad_norm: means over the finite steps, NaN (null in JSON) if there was none.
    lr: the learning rate of the last update.
    skipped: the number of skipped steps.
    tokens_per_sec, epoch: the speed, and how often the text has been read so far.
    penalties: the objective's, by name; the loss does not include them.
    scaling: in float16 loss_scale and overflows, the number of steps in the window that it skipped.
    """

    loss: float
    lr: float
    grad_norm: float
    skipped: float
    tokens_per_sec: float
    epoch: float
    penalties: Mapping[str, float] = types.MappingProxyType({})
    scaling: Mapping[str, float] = types.MappingProxyType({})


class Report:
    """Writes the metrics of a run that starts at `step`.

    Lines of later steps, from a run that was killed after its last save, are dropped. `peak_tflops` is that of all
    replicas together, for MFU; None: not known. `step_tokens` are the tokens of a step; None: B T.
    """

    def __init__(
        self,
        model_dir: str,
        unit: str,
        step: int,
        config: Config,
        peak_tflops: float | None = None,
        step_tokens: int | None = None,
    ):
        self.model_dir = model_dir
        training = families.task_of(config)
        # Only the loss of a language model is one of bits or words.
        self.unit = unit if isinstance(training, families.Pretraining) else None
        self.step = step
        self.config = config
        self.train_steps = config.train.train_steps
        self.step_tokens = step_tokens or config.data.batch_size * config.data.tgt_len
        self.step_flops = training.operations(config)
        self.peak_tflops = peak_tflops
        self.log = JsonLog(tf.io.gfile.join(model_dir, METRICS_FILE), step)
        self.board = Board(model_dir, step)
        self.charts: Charts = {}
        self.first_window = True

    def write_settings(self, model: keras.Model, leave_out: set[str]) -> None:
        """Writes the settings, without those in `leave_out`, and the parameters to TensorBoard, once per run."""
        if self.step:
            return
        self._lay_out(0)
        folder, _, name = self.model_dir.rstrip("/").rpartition("/")
        family = {"family": families.family_of(self.config).name}
        # The name comes first, since the table shows the beginning of a long one.
        self.board.hyperparameters(f"{name} in {folder}", family | setting_values(self.config, leave_out))
        self.board.text(0, "config", config_table(self.config))
        self.board.text(0, "parameters", parameter_table(model))

    def training(self, step: int, window: LogWindow, norms: Callable[[], tuple[float, float]]) -> None:
        """Reports one log window, which ends at a step.

        `norms` returns param_norm and update_ratio. The terminal's line does not wait for them, since they are slow to
        trace.
        """
        loss, lr, grad_norm, skipped, tokens_per_sec, epoch, penalties, scaling = window
        overflows = scaling.get("overflows", 0)
        mfu = None
        if self.peak_tflops and self.step_flops:
            flops = tokens_per_sec / self.step_tokens * self.step_flops
            mfu = round(flops / (self.peak_tflops * 1e12), 4)
        left = (self.train_steps - step) * self.step_tokens / tokens_per_sec
        print(
            f"step {step:>7,}/{self.train_steps:,} | epoch {epoch:.2f} | {self._loss_text(loss)} | "
            f"lr {lr:.2e} | grad norm {grad_norm:.3f} | {tokens_per_sec:,.0f} tokens/s"
            + ("" if mfu is None else f" | MFU {100 * mfu:.1f} %")
            + "".join(f" | {name.replace('_', ' ')} {value:.4f}" for name, value in penalties.items())
            + (f" | {duration(left)} left" if step < self.train_steps and not self.first_window else "")
            + (f" | {counted(skipped, 'step')} skipped: loss or gradient not finite" if skipped else "")
            + (f" | {counted(overflows, 'overflow')}, loss scale {scaling['loss_scale']:g}" if overflows else ""),
            flush=True,
        )
        self.first_window = False  # whose time is mostly that of compilation
        param_norm, update_ratio = norms()
        measured = {
            "step": step,
            "loss": loss,
            "lr": lr,
            "grad_norm": grad_norm,
            "param_norm": param_norm,
            "update_ratio": update_ratio,
            "skipped": int(skipped),
            "tokens_per_sec": round(tokens_per_sec, 1),
            "epoch": round(epoch, 6),
            **penalties,
            **scaling,
        }
        if mfu is not None:
            measured["mfu"] = mfu
        line = {key: value if math.isfinite(value) else None for key, value in measured.items()}
        self.log.append(line)
        curves: dict[str, float | None] = {**self._loss_curves(loss)}
        curves |= {f"loss/{name}": line[name] for name in penalties}
        curves |= {name: line[key] for name in TITLES | SCALING_TITLES if (key := name.partition("/")[2]) in line}
        self.board.scalars(step, curves)

    def evaluation(self, step: int, result: dict[str, Any]) -> None:
        """Reports one evaluation on valid during training; `result` is returned by `evaluate` of `train`."""
        measured = result.get("metrics", {})
        bits = [f"bits per byte {result['bits_per_byte']:.4f}"] if "bits_per_byte" in result else []
        texts = [self._loss_text(result["loss"]), *bits, *(f"{name} {value:.4f}" for name, value in measured.items())]
        print(f"step {step:>7,} | {'dev' if measured else 'valid'}: {' | '.join(texts)}", flush=True)
        curves = {f"{name}_valid": value for name, value in self._loss_curves(result["loss"]).items()}
        curves |= {f"metrics/{name}": value for name, value in (measured | result.get("baselines", {})).items()}
        if "bits_per_byte" in result:
            curves["loss/bits_per_byte"] = result["bits_per_byte"]
        self._lay_out(step, bool(measured), tuple(result.get("loss_by", ())))
        for about, parts in result.get("loss_by", {}).items():
            curves |= {
                f"loss_by_{about}/{label}": loss for label, loss in zip(parts["bins"], parts["loss"], strict=True)
            }
            title = f"Loss by {about} on valid, step {step:,}"
            self.board.picture(step, f"loss/by_{about}", bins_picture(parts["bins"], parts["loss"], about, title))
        self.board.scalars(step, curves)

    def _lay_out(self, step: int, metrics: bool = False, breakdowns: tuple[str, ...] = ()) -> None:
        """Writes TensorBoard's layout if it has changed: the first evaluation shows which results there are."""
        charts = layout(self._loss_curves(0.0), metrics, breakdowns, self.config.model.dtype == "mixed_float16")
        if charts != self.charts:
            self.charts = charts
            self.board.layout(step, charts)

    def _loss_text(self, loss: float) -> str:
        if self.unit is None:
            return f"loss {loss:.4f}"
        name, measure = bits_or_perplexity(loss, self.unit)
        return f"loss {loss:.4f} | {name} {measure:.4f}"

    def _loss_curves(self, loss: float) -> dict[str, float]:
        """The loss by the names of TensorBoard's curves."""
        if self.unit is None:
            return {"loss/per_example": loss}
        name, measure = bits_or_perplexity(loss, self.unit)
        return {"loss/nats_per_token": loss, f"loss/{name}": measure}


def config_table(config: Config) -> str:
    """A Config in Markdown: a table for each group."""
    tables = []
    for group, values in dataclasses.asdict(config).items():
        lines = [f"### {group}", "", "| setting | value |", "|---|---|"]
        tables.append("\n".join(lines + [f"| {name} | {value} |" for name, value in values.items()]))
    return "\n\n".join(tables)


def duration(seconds: float) -> str:
    """Seconds as text in at most two units: "3 d 04 h", "4 h 05 min", "6 min 07 s", "8 s"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
