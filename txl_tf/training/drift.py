"""Which settings of a run may change when it is continued."""

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
"""Settings that change no update, but for its dropout masks: a run may be continued with other values."""


def refuse_drift(old, new, model_dir):
    """InputError if a model_dir's Config and the one to continue it with would train differently."""
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
