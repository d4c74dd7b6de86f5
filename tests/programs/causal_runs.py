"""Training and evaluating a Transformer-XL with the causal objective, without a whole run around it."""

import dataclasses

import tensorflow as tf

from txl_tf.devices import distribute
from txl_tf.inference.evaluate import Evaluator
from txl_tf.models.transformer_xl.config import TransformerXLRunConfig
from txl_tf.objectives.causal_lm import CausalLM
from txl_tf.settings.run import CausalLMConfig
from txl_tf.training import step


def make_objective(model, loss_positions="full"):
    return CausalLM(model, TransformerXLRunConfig(objective=CausalLMConfig(loss_positions)))


def make_host_loop(strategy, model, optimizer, config, average=None, **objective):
    """`step.make_host_loop`, without what it says of bad steps: loop(iterator, mems, sums, n) -> (mems, sums)."""
    objective = make_objective(model, **objective)
    loop = step.make_host_loop(strategy, objective, optimizer, config, average)
    return lambda *args: loop(*args)[:2]


def initial_mems(strategy, model, batch_size):
    return distribute.initial_state(strategy, model.initial_mems, batch_size)


def loss_and_gradients(model, config, seed, inputs, targets, mems, **objective):
    """`step.loss_and_gradients` of the first step: mean loss, gradients of the sum, and the new Mems."""
    place = (seed, tf.constant(0), tf.constant(0))
    sums, mems = step.loss_and_gradients(
        make_objective(model, **objective), model.trainable_variables, config, place, (inputs, targets), mems
    )
    return sums.total / sums.weight, sums.gradients, mems


def evaluator(model, corpus, split, evaluation, reach, strategy, **options):
    """An Evaluator whose memory is that of `reach`."""
    names = ("mem_len", "clamp_len", "same_length")
    evaluation = dataclasses.replace(evaluation, **{name: getattr(reach, name) for name in names})
    names = ("mem_init", "same_length_window")
    config = dataclasses.replace(model.config, **{name: getattr(reach, name) for name in names})
    return Evaluator(TransformerXLRunConfig(config, eval=evaluation), model, corpus, split, strategy, **options)


def evaluate(*args, progress=None, record=None, **options):
    return evaluator(*args, **options)(progress, record)
