"""Adam and AdamW, with rates or gradients that depend on the layer, in one pass over the weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import keras
import tensorflow as tf

from txl_tf.config import TrainConfig
from txl_tf.layers import scopes
from txl_tf.layers.dropout import random_bits
from txl_tf.training.schedules import WarmupSchedule, make_schedule
from txl_tf.training.weight_rules import WeightRule, weight_rules


class Adam:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019) on gradients already summed over replicas.

    m += (g - m) * (1 - beta_1)        v += (g**2 - v) * (1 - beta_2)
    w -= rate * (c * m / (sqrt(v) + epsilon) + weight_decay * w)

    with c = sqrt(1 - beta_2**t) / (1 - beta_1**t) in update t (from 1), so that epsilon is the paper's "epsilon hat";
    without bias correction c = 1, as in the official XLNet AdamWeightDecay and in BERT's.

    Keras' Adam would sum the gradients over replicas a second time, since it can clip only before that sum. This one
    also clips, and can skip a step. With moments in the weights' dtype and no weight decay, the update of a weight is
    one TensorFlow operation.

    In bfloat16 moments take half the memory, and an update takes a third less time, since reads and writes dominate it.
    They are rounded stochastically (`stochastic_round`). With rounding to nearest v would never decrease: a step takes
    away a thousandth of it, which is less than half the distance between neighbouring numbers.

    iterations: int64 variable, the number of steps, including skipped ones: the position in schedule and data.

    Args:
        schedule: step -> learning rate.
        variables: the model's trainable Keras variables. Call it in the strategy's scope.
        beta_1, beta_2, epsilon: as in the equations.
        bfloat16_moments: keep the moments in bfloat16, not in the variables' dtype.
        bias_correction: correct for moments that start at zero.
        rules: a WeightRule for each variable; None: no weight decay, and one rate for all.
    """

    def __init__(
        self,
        schedule: WarmupSchedule,
        variables: Sequence[keras.Variable],
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        bfloat16_moments: bool = False,
        bias_correction: bool = True,
        rules: Sequence[WeightRule] | None = None,
    ):
        self.schedule = schedule
        self.variables = variables
        self.bfloat16_moments = bfloat16_moments
        self.betas = beta_1, beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        self.rules = [WeightRule() for _ in variables] if rules is None else rules

        # No aggregation: each replica updates its own copies, which stay equal because the gradients are equal.
        def moments() -> list[tf.Variable]:
            dtype = tf.bfloat16 if bfloat16_moments else variables[0].dtype
            zeros = [functools.partial(tf.zeros, variable.shape, dtype) for variable in variables]
            return [tf.Variable(initial_value, trainable=False) for initial_value in zeros]

        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.momenta, self.velocities = moments(), moments()

    def apply(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor | float, good: tf.Tensor) -> None:
        """One step; runs inside `strategy.run`.

        Args:
            gradients: of the variables, summed over replicas.
            scale: factor of the gradients, to clip them.
            good: bool; if False the gradients, finite or not, change nothing, and only `iterations` increases.
        """
        # A bad step is skipped by scalars only, which needs no further pass over the weights: with scale 0 the gradient
        # counts as 0 even where it is NaN, and with betas of 1 and a rate of 0 every value stays the same, bit for bit.
        dtype = gradients[0].dtype
        scale = tf.cast(tf.where(good, scale, 0), dtype)
        beta_1, beta_2 = (tf.where(good, tf.constant(beta, dtype), 1) for beta in self.betas)
        beta1_power, beta2_power = self._beta_powers(self.iterations + 1, dtype)
        scalars = {
            "beta1_power": beta1_power,
            "beta2_power": beta2_power,
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": tf.constant(self.epsilon, dtype),
        }
        rate = tf.cast(tf.where(good, self.schedule(self.iterations), 0), dtype)
        count = tf.cast(self.iterations, tf.int32)
        for i, (variable, momentum, velocity, gradient, rule) in enumerate(
            zip(self.variables, self.momenta, self.velocities, gradients, self.rules, strict=True)
        ):
            gradient = tf.math.multiply_no_nan(gradient, _times(scale, rule.gradient))
            weight = (variable.value, momentum, velocity, gradient)
            scalars["lr"] = _times(rate, rule.rate)
            if self.bfloat16_moments or rule.weight_decay:
                seed = tf.stack([count, i]) if self.bfloat16_moments else None
                with tf.name_scope(scopes.ADAM):
                    update_in_plain_ops(*weight, weight_decay=rule.weight_decay, seed=seed, **scalars)
            else:
                update_in_one_op(*weight, **scalars)
        self.iterations.assign_add(1)

    def last_update(self) -> list[tf.Tensor]:
        """The last step's update of each variable, which was subtracted: a list of tensors, computed from the moments.

        After a skipped step it is approximately the update of the last good step.
        """
        dtype = self.variables[0].dtype
        steps = tf.maximum(self.iterations, 1)
        rate = tf.cast(tf.where(self.iterations > 0, self.schedule(steps - 1), 0), dtype)
        corrected = _bias_corrected(rate, *self._beta_powers(steps, dtype))
        updates = []
        for variable, momentum, velocity, rule in zip(
            self.variables, self.momenta, self.velocities, self.rules, strict=True
        ):
            root = tf.sqrt(tf.cast(velocity, dtype)) + self.epsilon
            update = _times(corrected, rule.rate) * tf.cast(momentum, dtype) / root
            if rule.weight_decay:  # of the weights before the update: (weights now + update) / (1 - decay)
                decay = _times(rate, rule.rate) * rule.weight_decay
                update = (update + decay * tf.convert_to_tensor(variable.value)) / (1 - decay)
            updates.append(update)
        return updates

    def by_path(self) -> dict[str, tf.Variable]:
        """The variables for checkpoints; moments are named by the Keras paths of their weights."""
        named = {"iterations": self.iterations}
        for variable, momentum, velocity in zip(self.variables, self.momenta, self.velocities, strict=True):
            named |= {f"{variable.path}/momentum": momentum, f"{variable.path}/velocity": velocity}
        return named

    def _beta_powers(self, step: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Both betas to the power of the step (from 1), or 0 without bias correction."""
        if not self.bias_correction:
            return [tf.zeros([], dtype)] * 2
        return [tf.constant(beta, dtype) ** tf.cast(step, dtype) for beta in self.betas]


def _times(scalar: tf.Tensor, multiplier: float) -> tf.Tensor:
    """The product; no operation if the multiplier, a Python number, is 1."""
    return scalar if multiplier == 1 else scalar * multiplier


def _bias_corrected(rate: tf.Tensor, beta1_power: tf.Tensor, beta2_power: tf.Tensor) -> tf.Tensor:
    """The rate with the correction for moments that start at zero."""
    return rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)


def update_in_one_op(
    variable: tf.Variable, momentum: tf.Variable, velocity: tf.Variable, gradient: tf.Tensor, **scalars: tf.Tensor
) -> None:
    """Adam's update of one weight by ResourceApplyAdam, in place; arguments as for `update_in_plain_ops`."""
    handles = {"var": variable.handle, "m": momentum.handle, "v": velocity.handle}
    tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, **scalars)


def update_in_plain_ops(
    variable: tf.Variable,
    momentum: tf.Variable,
    velocity: tf.Variable,
    gradient: tf.Tensor,
    *,
    lr: tf.Tensor,
    beta1_power: tf.Tensor,
    beta2_power: tf.Tensor,
    beta1: tf.Tensor,
    beta2: tf.Tensor,
    epsilon: tf.Tensor,
    weight_decay: float = 0.0,
    seed: tf.Tensor | None = None,
) -> None:
    """The same update in several operations, which XLA fuses; allows weight decay and moments in bfloat16.

    Args:
        variable, momentum, velocity: the weight and its moments, all of one shape.
        gradient: of that shape, in the weight's dtype.
        lr, beta1_power, beta2_power, beta1, beta2, epsilon: scalars of that dtype, with the names of ResourceApplyAdam.
        weight_decay: a number; an update subtracts lr * weight_decay * weight.
        seed: int32 [2], of the rounding of moments in bfloat16; None: the moments have the weight's dtype.
    """
    weight, *moments = (tf.cast(tf.convert_to_tensor(each), gradient.dtype) for each in (variable, momentum, velocity))
    new_momentum = moments[0] + (gradient - moments[0]) * (1 - beta1)
    new_velocity = moments[1] + (gradient**2 - moments[1]) * (1 - beta2)
    update = _bias_corrected(lr, beta1_power, beta2_power) * new_momentum / (tf.sqrt(new_velocity) + epsilon)
    if weight_decay:
        update += tf.math.multiply_no_nan(weight, lr * weight_decay)  # with a rate of 0 even an infinite weight stays
    variable.assign(weight - update)
    if seed is not None:
        bits = random_bits(tf.shape(gradient), seed)
        new_momentum = stochastic_round(new_momentum, bits & 0xFFFF)
        new_velocity = stochastic_round(new_velocity, tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32)))
    momentum.assign(new_momentum)
    velocity.assign(new_velocity)


def stochastic_round(x: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """x rounded at random to one of its two neighbours in bfloat16; the nearer is more probable, so that the mean is x.

    Args:
        x: finite, of any float dtype; taken as float32.
        bits: uint32 below 2**16, of x's shape: random.
    """
    raised = tf.bitcast(tf.cast(x, tf.float32), tf.uint32) + bits
    return tf.cast(tf.bitcast(raised & 0xFFFF0000, tf.float32), tf.bfloat16)


def make_optimizer(config: TrainConfig, variables: Sequence[keras.Variable]) -> Adam:
    """The optimizer of a TrainConfig for a model's trainable variables; call it in the strategy's scope."""
    return Adam(
        make_schedule(config),
        variables,
        epsilon=config.adam_epsilon,
        bfloat16_moments=config.bfloat16_moments,
        bias_correction=config.bias_correction,
        rules=weight_rules(config, [variable.path for variable in variables]),
    )
