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
from txl_tf.training.drift import FREE_TO_CHANGE, refuse_drift
from txl_tf.training.gallery import Gallery
from txl_tf.training.interruption import StopRequest, TrainingStoppedError
from txl_tf.training.json_log import JsonLog
from txl_tf.training.metrics import Metrics
from txl_tf.training.norms import make_norms
from txl_tf.training.optimizer import make_optimizer
from txl_tf.training.peak import peak_tflops
from txl_tf.training.profiler import Profiler
from txl_tf.training.schedules import make_schedule
from txl_tf.training.step import Sums, make_host_loop


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
    return Run(config, corpus, model_dir, strategy, make_evaluator, make_sampler).to_its_end()


class Run:
    """A run at its first step, or where it stopped, with all that it carries from host loop to host loop.

    Args:
        as for `train`.
    """

    def __init__(self, config, corpus, model_dir, strategy, make_evaluator=None, make_sampler=None):
        distribute.lanes_per_replica(strategy, config.data.batch_size, config.train.accumulate_steps)
        refuse_drift(model_dirs.read_config(model_dir), config, model_dir)
        own_dir = distribute.own_dir(strategy, model_dir)
        model_dirs.describe(own_dir, config, corpus)
        self.settings, self.data, self.corpus, self.strategy = config.train, config.data, corpus, strategy
        self.epoch_steps = segments_per_epoch(corpus, "train", config.data.batch_size, config.data.tgt_len)
        self.step_tokens = config.data.batch_size * config.data.tgt_len

        with strategy.scope():
            keras.utils.set_random_seed(config.train.seed)
            self.model = TransformerXL(config.model)
            optimizer = make_optimizer(config.train, self.model.trainable_variables)
            self.average = WeightAverage(config.train, self.model.trainable_variables)
        self.mems, self.sums = distribute.initial_mems(strategy, self.model, config.data.batch_size), Sums()
        self.checkpoints = Checkpoints(
            model_dir,
            strategy,
            self.model,
            optimizer,
            self.average,
            self.mems,
            self.sums.stacked(),
            config.train.keep_checkpoints,
        )
        restored = self.checkpoints.restore()
        if restored is not None:
            self.mems, stacked = restored
            self.sums = Sums(*stacked.numpy().tolist())
        elif config.train.warm_start:
            model_dirs.read_weights(config.train.warm_start, self.model)
        self.step = self.saved = int(optimizer.iterations.numpy())
        if not distribute.is_same(strategy, self.step):
            raise InputError(f"the workers do not find the same checkpoints: all must see --model_dir={model_dir}")

        self.batches = iter(distribute.distribute_batches(strategy, self._make_batches))
        self.host_loop = make_host_loop(strategy, self.model, optimizer, config.train, self.average)

        peak = config.train.peak_tflops or peak_tflops(strategy)
        self.metrics = Metrics(own_dir, corpus.unit, self.step, config, peak and peak * strategy.num_replicas_in_sync)
        self.metrics.describe(self.model, leave_out=FREE_TO_CHANGE)
        self.norms = make_norms(strategy, self.model, optimizer)
        self.learning_rate = make_schedule(config.train)
        self.profiler = Profiler(self.metrics.board.folder, config.train.profile_steps)
        log = tf.io.gfile.join(model_dir, model_dirs.EVALUATIONS_FILE)
        self.evaluations = JsonLog(log, self.step, own_dir == model_dir)
        self.evaluate = make_evaluator(self.model) if make_evaluator and config.train.eval_steps else None
        if self.evaluate:
            sampler = make_sampler(self.model) if make_sampler else None
            self.gallery = Gallery(self.metrics.board, strategy, self.model, corpus, config, sampler)

    def _make_batches(self, **hosts):
        return training_batches(
            self.corpus,
            self.data.batch_size,
            self.data.tgt_len,
            step=self.step,
            random_offset=self.data.random_offset,
            seed=self.settings.seed,
            **hosts,
        )

    def to_its_end(self):
        """Trains, as `train` says."""
        self._introduce()
        run = self.settings
        self.window_start, self.window_time = self.step, time.perf_counter()
        with StopRequest() as self.stop, self.checkpoints:
            while True:
                paused = time.perf_counter()
                # Amid skipped steps the weights may be what is wrong: keep the checkpoints from before.
                if self._is_due(run.save_steps) and not self.sums.skipped_in_a_row:
                    self._save()  # before the evaluation, which may fail
                if self.evaluate and self._is_due(run.eval_steps) and not self._is_evaluated():
                    self._evaluate()
                is_early = 0 < run.early_stop_evals <= evaluations_since_best(self.evaluations.lines)
                signal = self._stop_signal()
                if self.step == run.train_steps or is_early or signal:
                    self._save()
                    break
                self.window_time += time.perf_counter() - paused  # tokens/s is of training alone
                self.profiler.at(self.step)
                self._take_steps(next_stop(self.step, run) - self.step)
                if self._is_due(run.log_steps):
                    self._log()
        self.profiler.at(self.step)
        if signal:
            raise TrainingStoppedError(signal, self.step)
        if is_early:
            print(
                f"stopped early at step {self.step:,}: valid has not improved for {run.early_stop_evals} evaluations; "
                f"the best was at step {min(self.evaluations.lines, key=model_dirs.score)['step']:,}",
                flush=True,
            )
        return self.model

    def _introduce(self):
        unused = self.corpus.split("train").tokens - 1 - self.epoch_steps * self.step_tokens
        print(
            f"{'continuing at' if self.step else 'starting at'} step {self.step:,} of {self.settings.train_steps:,}: "
            f"{self.model.count_params():,} parameters, {self.strategy.num_replicas_in_sync} replica(s), "
            f"{self.epoch_steps:,} steps of {self.step_tokens:,} tokens per epoch, which leave {unused:,} tokens unused"
            + (", evaluated with averaged weights" if self.settings.averages_weights else ""),
            flush=True,
        )

    def _take_steps(self, n):
        """One host loop; sees to it that the run is not lost."""
        with named_read_errors(self.corpus):
            self.mems, stacked = self.host_loop(self.batches, self.mems, self.sums.stacked(), tf.constant(n))
        self.step += n
        self.sums = Sums(*stacked.numpy().tolist())  # waits for the device
        stop_if_lost(self.sums, self.step, self.settings.max_bad_steps, self.checkpoints)

    def _log(self):
        """Reports the window that ends here, and begins the next."""
        steps = self.step % self.settings.log_steps or self.settings.log_steps
        loss, grad_norm = self.sums.means(steps)
        speed = (self.step - self.window_start) * self.step_tokens / (time.perf_counter() - self.window_time)
        self.metrics.training(
            self.step,
            loss,
            float(self.learning_rate(self.step - 1)),  # of the last update
            grad_norm,
            *self.norms(),
            self.sums.skipped,
            speed,
            self.step / self.epoch_steps,
        )
        self.sums = Sums(skipped_in_a_row=self.sums.skipped_in_a_row)
        self.window_start, self.window_time = self.step, time.perf_counter()

    def _save(self):
        """A checkpoint of this step, unless there is one."""
        if self.step != self.saved:
            self.checkpoints.save(self.step, self.mems, self.sums.stacked())
            self.saved = self.step

    def _evaluate(self):
        """Evaluates, with the weights to be judged; a signal cuts it off, and the continued run does it."""

        def check(*_):
            if self._stop_signal():
                raise EvaluationAbandonedError

        try:
            with self.average.in_use():
                result = self.evaluate(check)
        except EvaluationAbandonedError:
            return
        self.metrics.evaluation(self.step, "valid", result)
        best = min(map(model_dirs.score, self.evaluations.lines), default=math.inf)
        self.evaluations.append({"step": self.step} | result)
        if model_dirs.score(result) < best:
            self._save()
        if not self._stop_signal():
            with self.average.in_use():
                self.gallery.show(self.step)

    def _is_due(self, period):
        """Whether now is what happens every `period` steps and at the end."""
        return self.step and (self.step % period == 0 or self.step == self.settings.train_steps)

    def _is_evaluated(self):
        return self.step in (line["step"] for line in self.evaluations.lines)

    def _stop_signal(self):
        """The signal that asks this run to stop, on any worker; 0: none."""
        return distribute.agree(self.strategy, self.stop.signal or 0)


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
