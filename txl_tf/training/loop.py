"""A training run from its first step, or from where it stopped, to its last."""

import time

import keras
import tensorflow as tf

from txl_tf import distribute
from txl_tf import model_dir as model_dirs
from txl_tf.data.pipeline import named_read_errors, segments_per_epoch, training_batches
from txl_tf.errors import InputError
from txl_tf.models.transformer_xl import TransformerXL
from txl_tf.training.average import WeightAverage
from txl_tf.training.checkpoint import Checkpoints
from txl_tf.training.metrics import Metrics
from txl_tf.training.optimizer import WarmupCosine, make_optimizer
from txl_tf.training.peak import peak_tflops
from txl_tf.training.profiler import Profiler
from txl_tf.training.step import Sums, make_host_loop

FREE_TO_CHANGE = {
    "steps_per_loop",
    "log_steps",
    "save_steps",
    "eval_steps",
    "keep_checkpoints",
    "max_bad_steps",
    "profile_steps",
    "peak_tflops",
    "remat",
}
"""Settings that change no update, but for its dropout masks: a run may be continued with other values."""


def train(config, corpus, model_dir, strategy, evaluate=None):
    """Trains to config.train.train_steps, continuing what is in model_dir.

    Args:
        config: a Config; its model's vocabulary must be the corpus's.
        corpus: a Corpus with a "train" split.
        model_dir: where everything goes; local or gs://.
        strategy: from `distribute.make_strategy`.
        evaluate: called with the model every eval_steps and at the end, with averaged weights if the run keeps
            them; returns what `Metrics.evaluation` takes.

    Returns:
        the trained TransformerXL, with its last weights.

    Raises:
        InputError: model_dir holds another run, or the data is too small for one batch.
    """
    distribute.lanes_per_replica(strategy, config.data.batch_size, config.train.accumulate_steps)
    refuse_drift(model_dirs.read_config(model_dir), config, model_dir)
    model_dirs.describe(model_dir, config, corpus)
    data, run = config.data, config.train
    epoch_steps = segments_per_epoch(corpus, "train", data.batch_size, data.tgt_len)
    step_tokens = data.batch_size * data.tgt_len
    unused = corpus.split("train").tokens - 1 - epoch_steps * step_tokens

    with strategy.scope():
        keras.utils.set_random_seed(run.seed)
        model = TransformerXL(config.model)
        optimizer = make_optimizer(run, model.trainable_variables)
        average = WeightAverage(run, model.trainable_variables)
    mems, sums = distribute.initial_mems(strategy, model, data.batch_size), Sums().stacked()
    checkpoints = Checkpoints(model_dir, strategy, model, optimizer, average, mems, sums, run.keep_checkpoints)
    restored = checkpoints.restore()
    if restored is not None:
        mems, sums = restored
    step = int(optimizer.iterations.numpy())
    print(
        f"{'continuing at' if step else 'starting at'} step {step:,} of {run.train_steps:,}: "
        f"{model.count_params():,} parameters, {strategy.num_replicas_in_sync} replica(s), "
        f"{epoch_steps:,} steps of {step_tokens:,} tokens per epoch, which leave {unused:,} tokens unused"
        + (", evaluated with averaged weights" if run.averages_weights else ""),
        flush=True,
    )

    def batches(**hosts):
        return training_batches(
            corpus, data.batch_size, data.tgt_len, step=step, random_offset=data.random_offset, seed=run.seed, **hosts
        )

    iterator = iter(distribute.distribute_batches(strategy, batches))
    host_loop = make_host_loop(strategy, model, optimizer, run, average)
    schedule = WarmupCosine(run)
    peak = run.peak_tflops or peak_tflops(strategy)
    metrics = Metrics(model_dir, corpus.unit, step, config, peak and peak * strategy.num_replicas_in_sync)
    metrics.describe(model, leave_out=FREE_TO_CHANGE)
    profiler = Profiler(metrics.board.folder, run.profile_steps)
    window_start, window_time = step, time.perf_counter()
    while step < run.train_steps:
        profiler.at(step)
        n = next_stop(step, run) - step
        with named_read_errors(corpus):
            mems, sums = host_loop(iterator, mems, sums, tf.constant(n))
        step += n
        window = Sums(*sums.numpy().tolist())  # waits for the device
        stop_if_lost(window, step, run.max_bad_steps, checkpoints)
        if step % run.log_steps == 0 or step == run.train_steps:
            loss, grad_norm = window.means(step % run.log_steps or run.log_steps)
            now = time.perf_counter()
            speed = (step - window_start) * step_tokens / (now - window_time)
            lr = float(schedule(step - 1))  # of the last update
            metrics.training(step, loss, lr, grad_norm, window.skipped, speed, step / epoch_steps)
            sums = Sums(skipped_in_a_row=window.skipped_in_a_row).stacked()
            window_start, window_time = step, now
        paused = time.perf_counter()
        # Amid skipped steps the weights may be what is wrong: keep the checkpoints from before.
        if (step % run.save_steps == 0 and not window.skipped_in_a_row) or step == run.train_steps:
            checkpoints.save(step, mems, sums)
        if evaluate and run.eval_steps and (step % run.eval_steps == 0 or step == run.train_steps):
            with average.in_use():
                metrics.evaluation(step, "valid", evaluate(model))
        window_time += time.perf_counter() - paused  # tokens/s is of training alone
    profiler.at(step)
    return model


def stop_if_lost(sums, step, max_bad_steps, checkpoints):
    """InputError after max_bad_steps skipped in a row."""
    if sums.skipped_in_a_row >= max_bad_steps:
        good = checkpoints.manager.latest_checkpoint or "there is none yet"
        raise InputError(
            f"stopped at step {step:,}: the last {sums.skipped_in_a_row:,.0f} steps had no finite loss or gradient; "
            f"last good checkpoint: {good}; start again to retry from it, or anew with a lower learning_rate or clip"
        )


def next_stop(step, run):
    """The step at which the host loop must return: after steps_per_loop, or before, where something is due."""
    periods = [period for period in (run.log_steps, run.save_steps, run.eval_steps) if period]
    stops = [step - step % period + period for period in periods]
    stops += [stop for stop in run.profile_steps if stop > step]
    return min(step + run.steps_per_loop, run.train_steps, *stops)


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
