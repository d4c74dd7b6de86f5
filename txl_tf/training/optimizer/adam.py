"""Adam and AdamW, with rates or gradients that depend on the layer, in one pass over the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from txl_tf.hashing import random_bits
from txl_tf.ops.fewer import shared
from txl_tf.ops.gradients import ADAM
from txl_tf.settings.run import TrainConfig
from txl_tf.training.optimizer.loss_scale import LossScale
from txl_tf.training.optimizer.schedules import Schedule
from txl_tf.training.optimizer.weight_rules import weight_rules
from txl_tf.training.sharding import PartVariable, Sharding, in_replica

BETAS = 0.9, 0.999


class Scalars(NamedTuple):
    """The numbers of an update, in the dtype of the weights, with the names of ResourceApplyAdam."""

    lr: tf.Tensor
    beta1_power: tf.Tensor
    beta2_power: tf.Tensor
    beta1: tf.Tensor
    beta2: tf.Tensor
    epsilon: tf.Tensor


class Adam:
    """Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019) on gradients already summed over replicas.

    m += (g - m) * (1 - beta_1)        v += (g**2 - v) * (1 - beta_2)
    w -= rate * (c * m / (sqrt(v) + epsilon) + weight_decay * w)

    where g is the clipped gradient + l2 * w. In update t (from 1) c = sqrt(1 - beta_2**t) / (1 - beta_1**t), so epsilon
    is the paper's "epsilon hat". Without bias correction c = 1, as in AdamWeightDecay of the official XLNet and BERT.

    Keras' Adam would sum the gradients over replicas a second time, since it can clip only before that sum. This one
    also clips, and can skip a step. With moments in the weights' dtype and no weight decay, the update of a weight is
    one TensorFlow operation.

    In bfloat16 moments take half the memory, and updates, which mostly read and write, are faster. Moments are rounded
    stochastically (`stochastic_round`). Rounding to nearest would never let v decrease: a step takes away a thousandth
    of v, less than half the distance to the next bfloat16 number.

    For sharded weights (`Sharding`) a replica updates only its shard, and has the gradient and moments of this shard.

    iterations: int64 variable, the number of steps, including skipped ones: the position in schedule and data.

    Args:
        config: of the run.
        variables: the model's trainable Keras variables. Make it in the strategy's scope.
        replicas: their number; None: that of the current strategy.
        compute_dtype: of the model; None: that of the variables. With float16 there is a LossScale.
        n_layer: the model's number of layers, for `weight_rules`.
    """

    def __init__(
        self,
        config: TrainConfig,
        variables: Sequence[keras.Variable],
        replicas: int | None = None,
        compute_dtype: str | None = None,
        n_layer: int | None = None,
    ):
        self.config, self.variables = config, variables
        self.schedule = Schedule(config)
        self.sharding = Sharding(config, variables, replicas, compute_dtype)
        self.loss_scale = LossScale() if compute_dtype == "float16" else None
        self.rules = weight_rules(config, [variable.path for variable in variables], n_layer)

        def moments() -> list[tf.Variable | PartVariable]:
            dtype = tf.bfloat16 if config.bfloat16_moments else self.sharding.dtype
            return [self.sharding.variable(i, dtype) for i in range(len(variables))]

        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.momenta, self.velocities = moments(), moments()

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        scale: tf.Tensor | float,
        good: tf.Tensor,
        replica: Any = None,
        part: tf.Tensor | None = None,
    ) -> None:
        """One step; runs inside `strategy.run`.

        Args:
            gradients: of the variables, from `Sharding.sum`.
            scale: factor of the gradients, to clip them.
            good: bool; if False the gradients, finite or not, change nothing, and only `iterations` increases.
            replica: the replica's context; None: the current one.
            part: scalar, factor of the learning rate; None: 1.
        """
        replica = replica or tf.distribute.get_replica_context()
        # Scalars alone skip a bad step, without another pass over the weights: with scale 0 the gradient counts as 0
        # even where it is NaN, and with betas of 1 and a rate of 0 every value stays the same, bit for bit.
        dtype = gradients[0].dtype
        scale = tf.cast(tf.where(good, scale, 0), dtype)
        beta_1, beta_2 = (tf.where(good, tf.constant(beta, dtype), 1) for beta in BETAS)
        rate = tf.cast(tf.where(good, self.schedule(self.iterations), 0), dtype)
        rate = rate if part is None else rate * tf.cast(part, dtype)
        epsilon = tf.constant(self.config.adam_epsilon, dtype)
        scale, *scalars = shared([scale, rate, *self._beta_powers(self.iterations + 1, dtype), beta_1, beta_2, epsilon])
        count = tf.cast(self.iterations, tf.int32)
        for i, (variable, gradient, rule) in enumerate(zip(self.variables, gradients, self.rules, strict=True)):
            moments = in_replica(self.momenta[i]), in_replica(self.velocities[i])
            gradient = tf.math.multiply_no_nan(gradient, _times(scale, rule.gradient))
            own = Scalars(_times(scalars[0], rule.rate), *scalars[1:])
            weight = self.sharding.weight(i)
            if self.config.l2:  # in a bad step 0, even for an infinite weight
                l2 = tf.where(good, tf.constant(self.config.l2, dtype), 0)
                gradient += tf.math.multiply_no_nan(tf.convert_to_tensor(weight), l2)
            if not self.config.bfloat16_moments and not rule.weight_decay:
                update_in_one_op(weight, *moments, gradient, own)
                continue
            with tf.name_scope(ADAM):
                bits = None
                if self.config.bfloat16_moments:
                    bits = self.sharding.own(replica, i, random_bits(variable.shape, tf.stack([count, i])))
                weight.assign(updated_in_plain_ops(weight, *moments, gradient, own, rule.weight_decay, bits))
        self.iterations.assign_add(1)

    def last_update(self) -> list[tf.Tensor]:
        """The last step's update of each variable, or of this replica's shard of it: the values that were subtracted.

        They are computed from the moments. After a skipped step they are approximately those of the last good step.
        """
        dtype = self.sharding.dtype
        steps = tf.maximum(self.iterations, 1)
        rate = tf.cast(tf.where(self.iterations > 0, self.schedule(steps - 1), 0), dtype)
        corrected = _bias_corrected(rate, *self._beta_powers(steps, dtype))
        updates = []
        for i, rule in enumerate(self.rules):
            momentum, velocity = in_replica(self.momenta[i]), in_replica(self.velocities[i])
            root = tf.sqrt(tf.cast(velocity, dtype)) + self.config.adam_epsilon
            update = _times(corrected, rule.rate) * tf.cast(momentum, dtype) / root
            if rule.weight_decay:  # the weights before the update were (weights now + update) / (1 - decay)
                decay = _times(rate, rule.rate) * rule.weight_decay
                update = (update + decay * self.sharding.weight(i)) / (1 - decay)
            updates.append(update)
        return updates

    def by_path(self) -> dict[str, tf.Variable | PartVariable]:
        """The variables for checkpoints; moments are named by the Keras paths of their weights."""
        named: dict[str, tf.Variable | PartVariable] = {"iterations": self.iterations}
        for variable, momentum, velocity in zip(self.variables, self.momenta, self.velocities, strict=True):
            named |= {f"{variable.path}/momentum": momentum, f"{variable.path}/velocity": velocity}
        return named | (self.loss_scale.by_path() if self.loss_scale else {})

    def _beta_powers(self, step: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Both betas to the power of the step (from 1), or 0 without bias correction."""
        if not self.config.bias_correction:
            return [tf.zeros([], dtype)] * 2
        return [tf.constant(beta, dtype) ** tf.cast(step, dtype) for beta in BETAS]


def _times(scalar: tf.Tensor, multiplier: float) -> tf.Tensor:
    """The product; no operation if the multiplier, a Python number, is 1."""
    return scalar if multiplier == 1 else scalar * multiplier


def _bias_corrected(rate: tf.Tensor, beta1_power: tf.Tensor, beta2_power: tf.Tensor) -> tf.Tensor:
    """The rate with the correction for moments that start at zero."""
    return rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)


def update_in_one_op(
    variable: tf.Variable, momentum: tf.Variable, velocity: tf.Variable, gradient: tf.Tensor, scalars: Scalars
) -> None:
    """Adam's update of one weight by ResourceApplyAdam, in place; arguments as for `updated_in_plain_ops`."""
    handles = {"var": variable.handle, "m": momentum.handle, "v": velocity.handle}
    tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, **scalars._asdict())


def updated_in_plain_ops(
    weight: tf.Tensor,
    momentum: tf.Variable,
    velocity: tf.Variable,
    gradient: tf.Tensor,
    scalars: Scalars,
    weight_decay: float = 0.0,
    bits: tf.Tensor | None = None,
) -> tf.Tensor:
    """The new weight, in several operations, which XLA fuses; allows weight decay, parts, and moments in bfloat16.

    Args:
        weight: the weight, or a part of it.
        momentum, velocity: its moments, of the same shape, which are updated.
        gradient: of that shape, in the weight's dtype.
        scalars: of that dtype.
        weight_decay: a number; an update subtracts lr * weight_decay * weight.
        bits: uint32 of that shape, for the rounding of moments in bfloat16; None: the moments have the weight's dtype.
    """
    moments = [tf.cast(tf.convert_to_tensor(each), gradient.dtype) for each in (momentum, velocity)]
    new_momentum = moments[0] + (gradient - moments[0]) * (1 - scalars.beta1)
    new_velocity = moments[1] + (gradient**2 - moments[1]) * (1 - scalars.beta2)
    update = _bias_corrected(*scalars[:3]) * new_momentum / (tf.sqrt(new_velocity) + scalars.epsilon)
    if weight_decay:
        update += tf.math.multiply_no_nan(
            weight, scalars.lr * weight_decay
        )  # with a rate of 0 even an infinite weight stays
    if bits is not None:
        new_momentum = stochastic_round(new_momentum, bits & 0xFFFF)
        new_velocity = stochastic_round(new_velocity, tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32)))
    momentum.assign(new_momentum)
    velocity.assign(new_velocity)
    return weight - update


def stochastic_round(x: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """x rounded at random to one of its two neighbours in bfloat16; the nearer is more probable, so that the mean is x.

    x is finite, of any float dtype, and taken as float32; `bits` are random, uint32 below 2**16, of its shape.
    """
    raised = tf.bitcast(tf.cast(x, tf.float32), tf.uint32) + bits
    return tf.cast(tf.bitcast(raised & 0xFFFF0000, tf.float32), tf.bfloat16)
