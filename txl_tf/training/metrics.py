"""What a run reports: a line on the terminal, a line of metrics.jsonl, TensorBoard scalars."""

import json
import math

import tensorflow as tf

from txl_tf.model_dir import write_atomically


def bits_or_perplexity(loss, unit):
    """The field's measure for a unit of text: ("bpc", loss / ln 2) of bytes and characters, else ("ppl", exp(loss))."""
    if unit in ("byte", "char"):
        return "bpc", loss / math.log(2)
    return "ppl", math.exp(min(loss, 700.0))  # exp overflows beyond; a diverged run must still be able to say so


class Metrics:
    """Writes the metrics of a run that starts at `step`.

    Args:
        model_dir: of the run.
        unit: of the corpus.
        step: updates already made; lines of later ones, from a run that was killed after its last save, are dropped.
        train_steps: updates in all, for the terminal.
    """

    def __init__(self, model_dir, unit, step, train_steps):
        self.unit = unit
        self.train_steps = train_steps
        self.path = tf.io.gfile.join(model_dir, "metrics.jsonl")
        kept = ""
        if tf.io.gfile.exists(self.path):
            with tf.io.gfile.GFile(self.path) as file:
                kept = "".join(line for line in file if line.endswith("\n") and json.loads(line)["step"] <= step)
        write_atomically(self.path, kept)
        self.writer = tf.summary.create_file_writer(tf.io.gfile.join(model_dir, "tensorboard"))

    def training(self, step, loss, lr, grad_norm, skipped, tokens_per_sec, epoch):
        """One window of training: the means of its good steps (NaN, in JSON null, if there was none)."""
        line = {
            "step": step,
            "loss": None if math.isnan(loss) else loss,
            "lr": lr,
            "grad_norm": None if math.isnan(grad_norm) else grad_norm,
            "skipped": int(skipped),
            "tokens_per_sec": round(tokens_per_sec, 1),
            "epoch": round(epoch, 6),
        }
        with tf.io.gfile.GFile(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        name, measure = bits_or_perplexity(loss, self.unit)
        print(
            f"step {step:>7,}/{self.train_steps:,} | epoch {epoch:.2f} | loss {loss:.4f} | {name} {measure:.4f} | "
            f"lr {lr:.2e} | grad norm {grad_norm:.3f} | {tokens_per_sec:,.0f} tokens/s"
            + (f" | {int(skipped)} steps skipped: loss or gradient not finite" if skipped else ""),
            flush=True,
        )
        self._scalars(step, "train", {"loss": loss, name: measure})
        self._scalars(
            step,
            "optimization",
            {"learning_rate": lr, "grad_norm": grad_norm, "skipped": skipped, "tokens_per_sec": tokens_per_sec},
        )

    def evaluation(self, step, split, result):
        """One evaluation during training; `result` is what inference's `evaluate` returns."""
        name, measure = bits_or_perplexity(result["loss"], self.unit)
        print(f"step {step:>7,} | {split}: loss {result['loss']:.4f} | {name} {measure:.4f}", flush=True)
        self._scalars(step, split, {"loss": result["loss"], name: measure})

    def _scalars(self, step, group, values):
        with self.writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(f"{group}/{name}", value)
        self.writer.flush()
