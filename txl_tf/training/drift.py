"""Which settings may change when training is continued."""

from __future__ import annotations

from txl_tf.config import Config
from txl_tf.errors import InputError

FREE_TO_CHANGE = {
    "accumulate_steps",
    "steps_per_loop",
    "log_steps",
    "save_steps",
    "eval_steps",
    "early_stop_evals",
    "keep_checkpoints",
    "max_bad_steps",
    "profile_steps",
    "peak_tflops",
    "remat",
}
"""Settings that change updates by rounding at most: a run may be continued with other values of them."""


def refuse_drift(old: Config | None, new: Config, model_dir: str) -> None:
    """Raises InputError if training with `new` would differ from training with `old`, the model_dir's Config."""
    if old is None:
        return
    kinds = [f"a {config.family} trained for {config.task}" for config in (old, new)]
    if kinds[0] != kinds[1]:
        raise InputError(f"{model_dir} holds {kinds[0]}, not {kinds[1]}: give another --model_dir")
    differences = [
        f"{field}={getattr(getattr(new, group), field)!r} (was {getattr(getattr(old, group), field)!r})"
        for group in ("model", "data", "objective", "train")
        for field in vars(getattr(new, group))
        if getattr(getattr(new, group), field) != getattr(getattr(old, group), field) and field not in FREE_TO_CHANGE
    ]
    if differences:
        raise InputError(
            f"{model_dir} holds a run with other settings: {', '.join(differences)}; "
            "give the same settings or another --model_dir"
        )
