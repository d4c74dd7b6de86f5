"""A training run from its first step, or from where it stopped, to its last."""

import math
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
from txl_tf.training.gallery import Gallery
from txl_tf.training.interruption import StopRequest, TrainingStoppedError
from txl_tf.training.json_log import JsonLog
from txl_tf.training.metrics import Metrics
from txl_tf.training.norms import make_norms
from txl_tf.training.optimizer import WarmupCosine, make_optimizer
from txl_tf.training.peak import peak_tflops
from txl_tf.training.profiler import Profiler
from txl_tf.training.step import Sums, make_host_loop

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


class EvaluationAbandonedError(Exception):
    """An evaluation was cut off, because the run is to stop. It is done when the run is continued."""


@distribute.named_lost_contact()
def train(config, corpus, model_dir, strategy, make_evaluator=None, make_sampler=None):
    """Trains to config.train.train_steps, continuing what is in model_dir.

    A SIGTERM or SIGINT ends the run as soon as the running host loop is done and a checkpoint written: steps_per_loop
    times the seconds of a step bound the delay, and an evaluation is cut off. A preempted machine has 30 s for both.
    Several workers all call this and stay together: the chief alone writes, and one that is stopped stops all.

    Args:
        config: a Config; its model's vocabulary must be the corpus's.
        corpus: a Corpus with a "train" split.
        model_dir: where everything goes; local or gs://.
        strategy: from `distribute.make_strategy`.
        make_evaluator: called once with the model, in whose place averaged weights are if the run keeps them when it
            is evaluated, every eval_steps and at the end; returns evaluate(progress), which returns what
            `Metrics.evaluation` takes and calls progress with anything from time to time.
        make_sampler: called once with the model; returns what `Gallery` takes for text samples, at evaluations.

    Returns:
        the trained TransformerXL, with its last weights.

    Raises:
        InputError: model_dir holds another run, the data is too small for one batch, the weights to start with do
            not fit, no checkpoint can be read, the last one could not be written, or of several workers one has gone
            or does not see the others' checkpoints.
        TrainingStoppedError: after a signal.
    """
    distribute.lanes_per_replica(strategy, config.data.batch_size, config.train.accumulate_steps)
    refuse_drift(model_dirs.read_config(model_dir), config, model_dir)
    own_dir = distribute.own_dir(strategy, model_dir)
    model_dirs.describe(own_dir, config, corpus)
    data, run = config.data, config.train
    epoch_steps = segments_per_epoch(corpus, "train", data.batch_size, data.tgt_len)
    step_tokens = data.batch_size * data.tgt_len
    unused = corpus.split("train").tokens - 1 - epoch_steps * step_tokens

    with strategy.scope():
        keras.utils.set_random_seed(run.seed)
        model = TransformerXL(config.model)
        optimizer = make_optimizer(run, model.trainable_variables)
        average = WeightAverage(run, model.trainable_variables)
    mems, sums = distribute.initial_mems(strategy, model, data.batch_size), Sums()
    checkpoints = Checkpoints(
        model_dir, strategy, model, optimizer, average, mems, sums.stacked(), run.keep_checkpoints
    )
    restored = checkpoints.restore()
    if restored is not None:
        mems, stacked = restored
        sums = Sums(*stacked.numpy().tolist())
    elif run.warm_start:
        model_dirs.read_weights(run.warm_start, model)
    step = int(optimizer.iterations.numpy())
    if not distribute.is_same(strategy, step):
        raise InputError(f"the workers do not find the same checkpoints: all must see --model_dir={model_dir}")
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
    metrics = Metrics(own_dir, corpus.unit, step, config, peak and peak * strategy.num_replicas_in_sync)
    metrics.describe(model, leave_out=FREE_TO_CHANGE)
    norms = make_norms(strategy, model, optimizer)
    profiler = Profiler(metrics.board.folder, run.profile_steps)
    evaluations = JsonLog(tf.io.gfile.join(model_dir, model_dirs.EVALUATIONS_FILE), step, own_dir == model_dir)
    evaluate = make_evaluator(model) if make_evaluator and run.eval_steps else None
    if evaluate:
        sampler = make_sampler(model) if make_sampler else None
        gallery = Gallery(metrics.board, strategy, model, corpus, config, sampler)
    saved = step
    window_start, window_time = step, time.perf_counter()

    def stop_signal():
        return distribute.agree(strategy, stop.signal or 0)

    def is_due(period):
        return step and (step % period == 0 or step == run.train_steps)

    def save():
        nonlocal saved
        if step != saved:
            checkpoints.save(step, mems, sums.stacked())
            saved = step

    def evaluate_now():
        def check(*_):
            if stop_signal():
                raise EvaluationAbandonedError

        try:
            with average.in_use():
                result = evaluate(check)
        except EvaluationAbandonedError:
            return
        metrics.evaluation(step, "valid", result)
        improved = model_dirs.score(result) < min(map(model_dirs.score, evaluations.lines), default=math.inf)
        evaluations.append({"step": step} | result)
        if improved:
            save()
        if not stop_signal():
            with average.in_use():
                gallery.show(step)

    with StopRequest() as stop, checkpoints:
        while True:
            paused = time.perf_counter()
            # Amid skipped steps the weights may be what is wrong: keep the checkpoints from before.
            if is_due(run.save_steps) and not sums.skipped_in_a_row:
                save()  # before the evaluation, which may fail
            if evaluate and is_due(run.eval_steps) and step not in (line["step"] for line in evaluations.lines):
                evaluate_now()
            is_early = 0 < run.early_stop_evals <= evaluations_since_best(evaluations.lines)
            signal = stop_signal()
            if step == run.train_steps or is_early or signal:
                save()
                break
            window_time += time.perf_counter() - paused  # tokens/s is of training alone
            profiler.at(step)
            n = next_stop(step, run) - step
            with named_read_errors(corpus):
                mems, stacked = host_loop(iterator, mems, sums.stacked(), tf.constant(n))
            step += n
            sums = Sums(*stacked.numpy().tolist())  # waits for the device
            stop_if_lost(sums, step, run.max_bad_steps, checkpoints)
            if is_due(run.log_steps):
                loss, grad_norm = sums.means(step % run.log_steps or run.log_steps)
                speed = (step - window_start) * step_tokens / (time.perf_counter() - window_time)
                lr = float(schedule(step - 1))  # of the last update
                metrics.training(step, loss, lr, grad_norm, *norms(), sums.skipped, speed, step / epoch_steps)
                sums = Sums(skipped_in_a_row=sums.skipped_in_a_row)
                window_start, window_time = step, time.perf_counter()
    profiler.at(step)
    if signal:
        raise TrainingStoppedError(signal, step)
    if is_early:
        print(
            f"stopped early at step {step:,}: valid has not improved for {run.early_stop_evals} evaluations; "
            f"the best was at step {min(evaluations.lines, key=model_dirs.score)['step']:,}",
            flush=True,
        )
    return model


def stop_if_lost(sums, step, max_bad_steps, checkpoints):
    """InputError after max_bad_steps skipped in a row."""
    if sums.skipped_in_a_row >= max_bad_steps:
        good = checkpoints.newest() or "there is none yet"
        raise InputError(
            f"stopped at step {step:,}: the last {sums.skipped_in_a_row:,.0f} steps had no finite loss or gradient; "
            f"last good checkpoint: {good}; start again to retry from it, or anew with a lower learning_rate or clip"
        )


def evaluations_since_best(evaluations):
    """How many evaluations have come after the best one; 0 where there are none."""
    scores = [model_dirs.score(line) for line in evaluations]
    return len(scores) - 1 - scores.index(min(scores)) if scores else 0


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
