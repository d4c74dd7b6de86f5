"""A training run from its first step, or from its last checkpoint, to its last step."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from txl_tf import families
from txl_tf.counted import counted
from txl_tf.data.examples.example_set import TaskCorpus
from txl_tf.data.lanes import named_read_errors
from txl_tf.data.manifest import Corpus
from txl_tf.devices import distribute
from txl_tf.errors import InputError
from txl_tf.ops import platform
from txl_tf.runs import model_dir as model_dirs
from txl_tf.settings.run import FORMAT, Config, TrainConfig
from txl_tf.storage.lock import Lock
from txl_tf.training.bad_steps import BadSteps
from txl_tf.training.board.attention_maps import AttentionMaps
from txl_tf.training.board.gallery import Gallery
from txl_tf.training.board.json_log import JsonLog
from txl_tf.training.board.report import LogWindow, Report
from txl_tf.training.board.weights import make_histograms, make_norms
from txl_tf.training.evaluations import Evaluate, Evaluations
from txl_tf.training.interruption import StopRequest, TrainingStoppedError
from txl_tf.training.needs import require_memory
from txl_tf.training.optimizer.schedules import Schedule
from txl_tf.training.peak import peak_tflops
from txl_tf.training.profiler import Profiler
from txl_tf.training.same_run import FREE_TO_CHANGE, as_begun, refuse_other_run
from txl_tf.training.setup import TrainingSetup
from txl_tf.training.step import Sums

MakeEvaluator = Callable[[keras.Model], Evaluate]
MakeSampler = Callable[[keras.Model], Any]


_SKIPPED_END = 2
"""A run has failed if it ends with this many skipped steps; a single one may have had a bad batch."""


@distribute.named_lost_contact()
def train(
    config: Config,
    corpus: Corpus | TaskCorpus,
    model_dir: str,
    strategy: tf.distribute.Strategy,
    make_evaluator: MakeEvaluator | None = None,
    make_sampler: MakeSampler | None = None,
) -> keras.Model:
    """Trains to step config.train.train_steps; continues the run in model_dir if there is one.

    At SIGTERM or SIGINT the run finishes the current host loop, of at most steps_per_loop steps, writes a checkpoint
    and ends; it breaks off an evaluation. A preempted machine has 30 s for loop and checkpoint. With several workers
    all call this function and run in step: only the chief writes, and a signal to one of them stops all.

    Args:
        config: a Config, of any family; its model must have the corpus's vocabulary.
        corpus: a Corpus with a "train" split, or a TaskCorpus.
        model_dir: where all files are written; local or gs://.
        strategy: from `distribute.make_strategy`.
        make_evaluator: called once with the model; returns evaluate(progress), which is called every eval_steps and at
            the end. It returns the result for `Report.evaluation` and, as "panels", TensorBoard's pictures and texts.
            It calls progress, with any arguments, from time to time. If the run keeps averaged weights, the model has
            them during the evaluation.
        make_sampler: called once with the model; returns the `sampler` of `Gallery`, for text samples at evaluations.

    Returns:
        the trained model, with its last weights.

    Raises:
        InputError: training cannot begin. The model_dir holds another run or is in use, there is too little memory, the
            data is too small for one batch, the weights to start with do not fit, or no checkpoint can be read.
            Or it cannot end: the last checkpoint could not be written, the last steps were all skipped, or one of
            several workers is lost or does not see the others' checkpoints.
        TrainingStoppedError: after a signal.
    """
    with contextlib.ExitStack() as stack:
        lock = None
        if distribute.is_chief(strategy):
            tf.io.gfile.makedirs(model_dir)
            lock = stack.enter_context(Lock(model_dir))
        config = as_begun(config, model_dir)
        stack.enter_context(platform.using(config.train.ops))
        with strategy.scope():
            said = distribute.untested(config.train.ops)
        if said and distribute.is_chief(strategy):
            print(said, flush=True)
        return Run(config, corpus, model_dir, strategy, make_evaluator, make_sampler).train(lock)


class Run:
    """A run at its first step or its last checkpoint, with everything that it keeps between host loops; see `train`."""

    @tf.autograph.experimental.do_not_convert  # pictures and samples read the corpus; converting the pipeline is slow
    def __init__(
        self,
        config: Config,
        corpus: Corpus | TaskCorpus,
        model_dir: str,
        strategy: tf.distribute.Strategy,
        make_evaluator: MakeEvaluator | None = None,
        make_sampler: MakeSampler | None = None,
    ):
        refuse_impossible(config, corpus, model_dir, strategy)
        self.was_format = model_dirs.config_format(model_dir)
        self.settings, self.corpus, self.strategy = config.train, corpus, strategy
        self.data = families.task_of(config).training_data(corpus, config)
        begun = TrainingSetup.of(config, self.data, strategy, check=functools.partial(require_memory, config, strategy))
        self.model, self.optimizer, self.objective = begun.model, begun.optimizer, begun.objective
        self.state, self.sums = begun.initial_state(), begun.first_sums()
        self.checkpoints = begun.checkpoints(model_dir, self.state)
        self._restore(config)
        self.step = self.saved = int(self.optimizer.iterations.numpy())
        if not distribute.is_same(strategy, self.step):
            raise InputError(f"the workers do not find the same checkpoints: all must see --model_dir={model_dir}")
        self.batches, self.host_loop = begun.batches(self.step), begun.host_loop()

        own_dir = distribute.own_dir(strategy, model_dir)
        self.bad_steps = BadSteps(model_dir, self.step, writes=own_dir == model_dir)
        peak = config.train.peak_tflops or peak_tflops(strategy)
        peak = peak and peak * strategy.num_replicas_in_sync
        self.metrics = Report(own_dir, corpus.unit, self.step, config, peak, self.data.step_tokens)
        self.metrics.write_settings(self.model, leave_out=FREE_TO_CHANGE)
        self.norms = make_norms(strategy, self.optimizer)
        self.learning_rate = Schedule(config.train)
        self.profiler = Profiler(self.metrics.board.folder, config.train.profile_steps)
        log = tf.io.gfile.join(model_dir, model_dirs.EVALUATIONS_FILE)
        evaluations = JsonLog(log, self.step, own_dir == model_dir, model_dirs.EVALUATION)
        model_dirs.write_description(own_dir, config, corpus)  # now that the run is known to go on: all was read
        evaluate = make_evaluator(self.model) if make_evaluator and config.train.eval_steps else None
        gallery = self._gallery(config, make_sampler) if evaluate else None
        shown = distribute.is_chief(strategy)
        self.evaluations = Evaluations(evaluate, evaluations, self.metrics, gallery, begun.average, shown)

    def _restore(self, config: Config) -> None:
        """Takes over the newest checkpoint, or the weights to start with."""
        restored = self.checkpoints.restore()
        if restored is not None:
            self.state, stacked = restored
            self.sums = Sums.of(stacked.numpy().tolist(), self.objective)
        elif config.train.warm_start:
            head = families.task_of(config).head
            fresh = self.checkpoints.warm_start(config.train.warm_start, head, config.train.warm_start_layers)
            fresh = [name for name in fresh if head and name.startswith(head)]
            if fresh:
                print(
                    f"{len(fresh)} weights of the head are not in {config.train.warm_start}: they are new",
                    flush=True,
                )

    def _gallery(self, config: Config, make_sampler: MakeSampler | None) -> Gallery:
        sampler = make_sampler(self.model) if make_sampler else None
        task, corpus = families.task_of(config), self.corpus
        view = task.attention(self.model, corpus, config) if isinstance(corpus, Corpus) else None
        maps = AttentionMaps(self.strategy, view) if view else None
        histograms = make_histograms(self.strategy, self.model, self.optimizer)
        return Gallery(self.metrics.board, config.train, maps, sampler, histograms)

    def train(self, lock: Lock | None = None) -> keras.Model:
        """Trains to the last step; see the function `train`. `lock` is the model_dir's, if this process has it."""
        self._introduce()
        settings = self.settings
        self.optimizer.sharding.empty()
        self.window_start, self.window_time = self.step, time.perf_counter()
        with StopRequest() as self.stop, self.checkpoints:
            while True:
                paused = time.perf_counter()
                if lock:
                    lock.check()
                if self.step == settings.train_steps:
                    self._refuse_skipped(min(self.step, _SKIPPED_END))
                # If steps are being skipped, the weights may be wrong: keep the checkpoints from before.
                if self._is_due(settings.save_steps) and not self.sums.skipped_in_a_row:
                    self._save()  # before the evaluation, which may fail
                if self.evaluations.misses(self.step) and self._is_due(settings.eval_steps):
                    self._evaluate()
                is_early = 0 < settings.early_stop_evals <= self.evaluations.since_best()
                signal = self._stop_signal()
                if is_early:
                    self._refuse_skipped(min(self.step, _SKIPPED_END))
                if self.step == settings.train_steps or is_early or signal:
                    self._save()
                    break
                self.window_time += time.perf_counter() - paused  # tokens/s counts only training
                self.profiler.at(self.step)
                self._take_steps(next_stop(self.step, settings) - self.step)
                if self._is_due(settings.log_steps):
                    self._log()
        self.profiler.at(self.step)
        if signal:
            raise TrainingStoppedError(signal, self.step)
        if is_early:
            print(
                f"stopped early at step {self.step:,}: {settings.early_stop_evals} evaluations were not better; "
                f"the best was at step {self.evaluations.best_step():,}",
                flush=True,
            )
        self.optimizer.sharding.fill()
        return self.model

    def _introduce(self) -> None:
        shared = self.optimizer.sharding.fraction()
        trained = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        finished = self.step == self.settings.train_steps
        begins = "finished" if finished else "continuing" if self.step else "starting"
        print(
            f"{begins} at step {self.step:,} of {self.settings.train_steps:,}: "
            f"{self.model.count_params():,} parameters, {counted(self.strategy.num_replicas_in_sync, 'replica')}, "
            f"{counted(self.data.epoch_steps, 'step')} of {self.data.step_tokens:,} tokens per epoch, leaving "
            f"{counted(self.data.unused, 'token')} unused"
            + (f" and reading the others {self.data.reads} times" if self.data.reads > 1 else "")
            + (f", {shared:.1%} of weights and moments sharded over them" if shared else "")
            + (
                f", {1 - trained / self.model.count_params():.1%} of the parameters frozen"
                if self.settings.freeze
                else ""
            )
            + (", evaluated with averaged weights" if self.settings.averages_weights else ""),
            flush=True,
        )
        if finished:
            tuned = isinstance(self.corpus, TaskCorpus)
            command, flag = ("predict (--metrics)", "--init") if tuned else ("evaluate", "--warm_start")
            more = "" if tuned else "; --train_steps=N --extend gives it more steps"
            print(
                f"this run is finished: use the commands {command} and export_savedmodel, or begin a new run with its "
                f"weights by {flag} and another --model_dir{more}",
                flush=True,
            )
        elif self.step and self.was_format < FORMAT:
            print("this run was started by an earlier version of txl_tf: its dropout masks now differ", flush=True)

    def _take_steps(self, n: int) -> None:
        """One host loop; ends the run if too many steps were skipped."""
        with named_read_errors(self.corpus):
            self.state, stacked, bad = self.host_loop(self.batches, self.state, self.sums.stacked(), tf.constant(n))
        self.sums = Sums.of(stacked.numpy().tolist(), self.objective)  # waits for the device
        if bad >= 0:
            self.bad_steps.record(self.step + int(bad) + 1)
        self.step += n
        self._refuse_skipped(self.settings.max_bad_steps)

    def _refuse_skipped(self, steps: int) -> None:
        """Raises InputError if the last steps, this many, were all skipped: the weights are useless, and not saved."""
        if self.sums.skipped_in_a_row >= steps:
            good = self.checkpoints.newest() or "there is none yet"
            raise InputError(
                f"stopped at step {self.step:,}: the last {counted(self.sums.skipped_in_a_row, 'step')} had no finite "
                f"loss or gradient; last good checkpoint: {good}; start again to retry from it, or start a new run "
                "with a lower learning_rate or clip"
            )

    def _log(self) -> None:
        """Reports the log window that ends at this step, and starts the next."""
        steps = self.step - first_of_window(self.step, self.settings)
        loss, grad_norm, *penalties = self.sums.means(steps)
        speed = (self.step - self.window_start) * self.data.step_tokens / (time.perf_counter() - self.window_time)
        window = LogWindow(
            loss,
            float(self.learning_rate(self.step - 1)),
            grad_norm,
            self.sums.skipped,
            speed,
            self.step / self.data.epoch_steps,
            dict(zip(self.objective.penalties, penalties, strict=True)),
            self._scaling(),
        )
        self.metrics.training(self.step, window, self.norms)
        self.sums = self.sums.next_window()
        self.window_start, self.window_time = self.step, time.perf_counter()

    def _scaling(self) -> dict[str, float]:
        """The loss scale and its overflows, to report; empty without a loss scale."""
        scale = self.optimizer.loss_scale
        return {"loss_scale": float(scale.scale.numpy()), "overflows": int(self.sums.overflows or 0)} if scale else {}

    def _save(self) -> None:
        """Saves a checkpoint of this step, unless there is one."""
        if self.step != self.saved:
            self.checkpoints.save(self.step, self.state, self.sums.stacked())
            self.saved = self.step

    def _evaluate(self) -> None:
        """Evaluates, and keeps the best weights. A signal breaks it off; then the continued run repeats it."""
        if self.evaluations.evaluate(self.step, self._stop_signal) and not self.sums.skipped_in_a_row:
            self._save()
        if not self._stop_signal():
            self.evaluations.show(self.step)

    def _is_due(self, period: int) -> bool:
        """Whether this step is a multiple of `period`, or an end; never before the first step."""
        return self.step > 0 and (self.step % period == 0 or self.step in self.settings.ends)

    def _stop_signal(self) -> int:
        """The signal to stop that any worker has received; 0: none."""
        return distribute.agree(self.strategy, self.stop.signal or 0)


def refuse_impossible(
    config: Config, corpus: Corpus | TaskCorpus, model_dir: str, strategy: tf.distribute.Strategy
) -> None:
    """Raises InputError if the run cannot be of this batch size, corpus, model_dir or dtype."""
    distribute.lanes_per_replica(strategy, config.data.batch_size, config.train.accumulate_steps)
    refuse_other_run(model_dir, config, corpus)
    if config.model.vocab_size < corpus.vocabulary.vocab_size:
        raise InputError(
            f"vocab_size={config.model.vocab_size} is too small: the vocabulary of {corpus.data_dir} has "
            f"{corpus.vocabulary.vocab_size:,} tokens"
        )
    distribute.require_dtype(strategy, config.model.dtype)


def next_stop(step: int, settings: TrainConfig) -> int:
    """The step at which the host loop must return: after steps_per_loop, or earlier if something is due."""
    periods = [period for period in (settings.log_steps, settings.save_steps, settings.eval_steps) if period]
    stops = [step - step % period + period for period in periods]
    stops += [stop for stop in (*settings.profile_steps, *settings.ends) if stop > step]
    return min(step + settings.steps_per_loop, *stops)


def first_of_window(step: int, settings: TrainConfig) -> int:
    """The number of updates before the log window that ends at this step; no window goes past an end of the run."""
    return max(
        (step - 1) // settings.log_steps * settings.log_steps, *(end for end in (0, *settings.ends) if end < step)
    )
