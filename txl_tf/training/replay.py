"""Runs one step of a finished or broken run again, and finds the operation with the first result that is not finite.

The repeated step is identical: the checkpoint before it has weights, moments and state, and data and random numbers
follow from the step and the lane, on any number of replicas. So a failure on many cores can be found on one.
"""

from __future__ import annotations

import re
import traceback
import typing
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from txl_tf import families
from txl_tf.data.lanes import named_read_errors
from txl_tf.data.manifest import Corpus
from txl_tf.devices import distribute
from txl_tf.errors import InputError, one_line
from txl_tf.progress import Progress
from txl_tf.settings.run import Config
from txl_tf.training.setup import TrainingSetup
from txl_tf.training.step import loss_and_gradients

STEPS_PER_CALL = 20  # between progress reports
_CALLER = re.compile(r'File "[^"]*(txl_tf/(?![^"]*training/replay)[^"]*)", line (\d+), in (\S+)')


class Replayed(typing.NamedTuple):
    """The result of a repeated step.

    step: its number, from 1.
    loss: nats per target.
    grad_norm: of the gradients before clipping.
    variables: paths of the variables whose gradients are not finite.
    operation: the first operation whose result is not finite, its layer and the line that calls it; None: there is
        none.
    """

    step: int
    loss: float
    grad_norm: float
    variables: list[str]
    operation: str | None


def replay(config: Config, corpus: Corpus, model_dir: str, step: int, progress: Progress | None = None) -> Replayed:
    """Runs step number `step`, from 1, of the run in model_dir again, on one device; changes no file.

    It starts at the newest checkpoint before that step, or at the run's first step if there is none, and runs the steps
    between. accumulate_steps may differ from the run's, to need less memory. `progress` gets (steps done, steps to do).

    InputError if there is no such step, or a checkpoint cannot be read.
    """
    if not 1 <= step <= config.train.train_steps:
        raise InputError(f"--step={step} is not a step of this run: give 1 to {config.train.train_steps}")
    strategy, task = distribute.make_strategy("one_device"), families.task_of(config)
    begun = TrainingSetup.of(config, task.training_data(corpus, config), strategy)
    objective, optimizer, state = begun.objective, begun.optimizer, begun.initial_state()
    sums = begun.first_sums().stacked()
    checkpoints = begun.checkpoints(model_dir, state)
    restored = checkpoints.restore(before=step)
    if restored is not None:
        state, sums = restored
    elif config.train.warm_start:
        checkpoints.warm_start(config.train.warm_start, task.head, config.train.warm_start_layers)
    first = int(optimizer.iterations.numpy())
    batches, loop = begun.batches(first), begun.host_loop()
    with named_read_errors(corpus):
        for done in range(0, step - 1 - first, STEPS_PER_CALL):
            n = min(STEPS_PER_CALL, step - 1 - first - done)
            state, sums, _ = loop(batches, state, sums, tf.constant(n))
            if progress:
                progress(done + n, step - 1 - first)
        batch = next(batches)

    place = (tf.constant([config.train.seed, 0]), optimizer.iterations, tf.constant(0))
    arguments = (objective, optimizer.variables, config.train, place, batch, state, optimizer.loss_scale)
    found, _ = loss_and_gradients(*arguments)
    gradients = [gradient.numpy() for gradient in found.gradients]
    with np.errstate(all="ignore"):
        squares = sum(float(np.sum(np.square(gradient, dtype=np.float64))) for gradient in gradients)
    variables = [
        variable.path
        for variable, gradient in zip(begun.model.trainable_variables, gradients, strict=True)
        if not np.isfinite(gradient).all()
    ]
    weight = float(found.weight)
    return Replayed(
        step=step,
        loss=float(found.total) / (weight or 1.0),
        grad_norm=float(np.sqrt(squares)) / (weight or 1.0),
        variables=variables,
        operation=first_bad_operation(lambda: loss_and_gradients(*arguments)),
    )


def first_bad_operation(function: Callable[[], object]) -> str | None:
    """The first operation of function() whose result is not finite, its layer and the line of txl_tf; None: none.

    It runs the function operation by operation, forward and backward, and checks each result.
    """
    tf.debugging.enable_check_numerics(stack_height_limit=60)
    try:
        function()
    except tf.errors.InvalidArgumentError as error:
        return _describe(error)
    finally:
        tf.debugging.disable_check_numerics()
    return None


def _describe(error: tf.errors.InvalidArgumentError) -> str:
    operation = re.search(r'op "(\w+)"', error.message)
    values = re.search(r"# of [^\n]*?elements?: [^\n]*", error.message)
    lines = _CALLER.findall(str(error)) or _CALLER.findall("".join(traceback.format_tb(error.__traceback__)))
    said = operation[1] if operation else one_line(error)[:200]
    where = f" called by {lines[-1][0]}:{lines[-1][1]} ({lines[-1][2]})" if lines else ""
    callers = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    layers = [caller.path for caller in callers if isinstance(caller, keras.layers.Layer)]
    within = f" in {layers[-1]}" if layers else ""
    return f"{said}{within}{where}" + (f"; {one_line(values[0])}" if values else "")
