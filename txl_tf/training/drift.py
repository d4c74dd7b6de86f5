"""Which settings may change when training is continued."""

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
"""Settings that do not affect the updates, or only their dropout masks: training may continue with other values."""


def refuse_drift(old, new, model_dir):
    """Raises InputError if `new`, the Config to continue with, differs from the model_dir's in any other setting."""
    if old is None:
        return
    differences = [
        f"{field}={getattr(getattr(new, group), field)!r} (was {getattr(getattr(old, group), field)!r})"
        for group in ("model", "data", "train")
        for field in vars(getattr(new, group))
        if getattr(getattr(new, group), field) != getattr(getattr(old, group), field) and field not in FREE_TO_CHANGE
    ]
    if differences:
        raise InputError(
            f"{model_dir} holds a run with other settings: {', '.join(differences)}; "
            "give the same settings or another --model_dir"
        )
