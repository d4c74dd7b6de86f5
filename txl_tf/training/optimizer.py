"""Adam under the paper's schedule: linear warmup, then a cosine to min_lr_ratio."""

import functools
import math

import keras
import tensorflow as tf

from txl_tf.layers.dropout import random_bits


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate of update `step` (from 0): linear to the peak, then half a cosine down (official tf/train.py).

    step < W:  peak * step / W
    else:      peak * (r + (1 - r) * (1 + cos(pi * (step - W) / (S - W))) / 2)

    with W warmup steps, S steps in all, r the final ratio.

    Args:
        config: a TrainConfig.
    """

    def __init__(self, config):
        self.peak = config.learning_rate
        self.final_ratio = config.min_lr_ratio
        self.warmup_steps = config.warmup_steps
        self.train_steps = config.train_steps

    def __call__(self, step):
        """The rate, float32."""
        step = tf.cast(step, tf.float32)
        progress = (step - self.warmup_steps) / (self.train_steps - self.warmup_steps)
        cosine = (1 + tf.cos(math.pi * tf.clip_by_value(progress, 0.0, 1.0))) / 2
        decayed = self.final_ratio + (1 - self.final_ratio) * cosine
        warmup = step / max(self.warmup_steps, 1)
        return self.peak * tf.where(step < self.warmup_steps, warmup, decayed)

    def get_config(self):
        """The schedule's numbers."""
        return dict(vars(self))


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1) on gradients that are already summed over replicas.

    Keras' own would sum them a second time, since it knows no other moment to clip than before the sum. This one also
    clips, and can leave a step out; with moments in the weights' dtype it is a single op for each weight.

    In bfloat16 moments take half the memory, and an update, whose time is that of its reads and writes, a third less.
    They are rounded stochastically (`stochastic_round`). To the nearest, a velocity would never fall: what it loses in
    a step, a thousandth, is less than half the distance of two neighbouring numbers.

    iterations: int64 variable, the steps taken, skipped ones included: the schedule's and the data's position.

    Args:
        schedule: step -> learning rate.
        variables: the model's trainable Keras variables. Call it in the strategy's scope.
        beta_1, beta_2, epsilon: as in the paper.
        bfloat16_moments: keep the moments in bfloat16, not in the variables' dtype.
    """

    def __init__(self, schedule, variables, beta_1=0.9, beta_2=0.999, epsilon=1e-8, bfloat16_moments=False):
        self.schedule = schedule
        self.variables = variables
        self.bfloat16_moments = bfloat16_moments
        self.betas = beta_1, beta_2
        self.epsilon = epsilon

        # No aggregation: each replica updates its own copies, the same as the others' since the gradients are.
        def moments():
            dtype = tf.bfloat16 if bfloat16_moments else variables[0].dtype
            zeros = [functools.partial(tf.zeros, variable.shape, dtype) for variable in variables]
            return [tf.Variable(initial_value, trainable=False) for initial_value in zeros]

        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.momenta, self.velocities = moments(), moments()

    def apply(self, gradients, scale, good):
        """One step; runs inside `strategy.run`.

        Args:
            gradients: of the variables, summed over replicas.
            scale: what to multiply them with, to clip them.
            good: bool; where False the gradients, finite or not, change nothing, and only `iterations` moves on.
        """
        # By scalars alone, so that guarding costs no pass over the weights: with a scale of 0 the gradient counts as 0
        # even where it is NaN, and with betas of 1 and a rate of 0 nothing moves, bit for bit.
        dtype = gradients[0].dtype
        step = tf.cast(self.iterations + 1, dtype)
        betas = [tf.constant(beta, dtype) for beta in self.betas]
        scale = tf.cast(tf.where(good, scale, 0), dtype)
        beta_1, beta_2 = (tf.where(good, beta, 1) for beta in betas)
        scalars = {
            "lr": tf.cast(tf.where(good, self.schedule(self.iterations), 0), dtype),
            "beta1_power": betas[0] ** step,
            "beta2_power": betas[1] ** step,
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": tf.constant(self.epsilon, dtype),
        }
        count = tf.cast(self.iterations, tf.int32)
        for i, (variable, momentum, velocity, gradient) in enumerate(
            zip(self.variables, self.momenta, self.velocities, gradients, strict=True)
        ):
            gradient = tf.math.multiply_no_nan(gradient, scale)
            if self.bfloat16_moments:
                with tf.name_scope("adam"):
                    _apply_rounding(variable.value, momentum, velocity, gradient, tf.stack([count, i]), **scalars)
            else:
                handles = {"var": variable.value.handle, "m": momentum.handle, "v": velocity.handle}
                tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, **scalars)
        self.iterations.assign_add(1)

    def last_update(self):
        """How far the last good step moved each variable, signs aside: a list of tensors, made from the moments."""
        dtype = self.variables[0].dtype
        step = tf.cast(tf.maximum(self.iterations, 1), dtype)
        beta_1, beta_2 = (tf.constant(beta, dtype) for beta in self.betas)
        rate = _bias_corrected(tf.cast(self.schedule(self.iterations - 1), dtype), beta_1**step, beta_2**step)
        return [
            rate * tf.cast(momentum, dtype) / (tf.sqrt(tf.cast(velocity, dtype)) + self.epsilon)
            for momentum, velocity in zip(self.momenta, self.velocities, strict=True)
        ]

    def by_path(self):
        """The variables for checkpoints, moments by their weights' Keras paths."""
        named = {"iterations": self.iterations}
        for variable, momentum, velocity in zip(self.variables, self.momenta, self.velocities, strict=True):
            named |= {f"{variable.path}/momentum": momentum, f"{variable.path}/velocity": velocity}
        return named


def _bias_corrected(rate, beta1_power, beta2_power):
    """The rate that makes up for moments which begin at zero."""
    return rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)


def _apply_rounding(
    variable, momentum, velocity, gradient, seed, *, lr, beta1_power, beta2_power, beta1, beta2, epsilon
):
    """What ResourceApplyAdam does, with moments in bfloat16."""
    new_momentum, new_velocity = (tf.cast(moment, gradient.dtype) for moment in (momentum, velocity))
    new_momentum += (gradient - new_momentum) * (1 - beta1)
    new_velocity += (gradient**2 - new_velocity) * (1 - beta2)
    rate = _bias_corrected(lr, beta1_power, beta2_power)
    variable.assign_sub(rate * new_momentum / (tf.sqrt(new_velocity) + epsilon))
    bits = random_bits(tf.shape(gradient), seed)
    momentum.assign(stochastic_round(new_momentum, bits & 0xFFFF))
    velocity.assign(stochastic_round(new_velocity, tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))))


def stochastic_round(x, bits):
    """x in bfloat16: one of its two neighbours there, each the likelier the nearer, so that the mean is x.

    Args:
        x: finite, of any float dtype; taken as float32.
        bits: uint32 below 2**16, of x's shape: random.
    """
    raised = tf.bitcast(tf.cast(x, tf.float32), tf.uint32) + bits
    return tf.cast(tf.bitcast(raised & 0xFFFF0000, tf.float32), tf.bfloat16)


def make_optimizer(config, variables):
    """The optimizer of a TrainConfig for `variables`; call it in the strategy's scope."""
    return Adam(WarmupCosine(config), variables, bfloat16_moments=config.bfloat16_moments)
