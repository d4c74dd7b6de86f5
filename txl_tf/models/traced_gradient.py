"""A function and its gradient, each traced once, for programs that call it many times with different tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from txl_tf.ops.gradients import WithGradient, custom_gradient

Differentiable = Callable[..., tf.Tensor]


def traced_with_gradient(
    function: Differentiable, wanted: Sequence[tf.TensorSpec], others: Sequence[tf.TensorSpec]
) -> Differentiable:
    """The same function, as a call of a graph; its gradient is a call of another graph. Both are traced here.

    A tf.function, too, is differentiated by a call. But TensorFlow passes the shapes and constants in it to the
    gradient as arguments. A compiler must know them, so it would compile a whole program of such functions anew for
    each call. Here the second graph has its own constants, and gets only what depends on the arguments.

    Args:
        function: of tensors of these specs, first `wanted`, then `others`; returns a tensor. It uses no other tensors
            or variables.
        wanted: those with a gradient, all floats.
        others: those without.

    Raises:
        ValueError: the function uses other tensors.
    """

    def both(*inputs: tf.Tensor) -> list[tf.Tensor]:
        sources = inputs[: len(wanted)]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            result = function(*inputs)
        upstream = tf.compat.v1.placeholder(result.dtype, result.shape)  # an input of the second graph alone
        gradients = tape.gradient(result, sources, upstream, tf.UnconnectedGradients.ZERO)
        return [result, upstream, *map(tf.convert_to_tensor, gradients)]

    whole = tf.compat.v1.wrap_function(both, [*wanted, *others])
    if whole.graph.captures:
        shapes = [tuple(outside.shape) for outside, _ in whole.graph.captures]
        raise ValueError(f"the function uses tensors or variables of shapes {shapes}: pass them as arguments")
    inputs, (result, upstream, *gradients) = list(whole.graph.inputs), whole.graph.outputs
    kept = _used_by_both(inputs, result, gradients)
    forward, backward = (
        as_call(whole.prune(*ends)) for ends in ((inputs, [result, *kept]), ([upstream, *inputs, *kept], gradients))
    )

    @custom_gradient
    def call(*arguments: tf.Tensor) -> WithGradient:
        output, *values = forward(*arguments)

        def gradient(upstream: tf.Tensor) -> tuple:
            return (*backward(upstream, *arguments, *values), *[None] * len(others))

        return output, gradient

    return call


def _used_by_both(inputs: Sequence[tf.Tensor], result: tf.Tensor, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors of the result's computation that the gradients use, if they depend on an input; not the inputs."""
    forward = _computing([result])
    given = {tensor.op for tensor in inputs}
    varies = set(given)
    for operation in result.graph.get_operations():  # in the order in which they were made
        random = operation.op_def.is_stateful
        if random or any(tensor.op in varies for tensor in operation.inputs):
            varies.add(operation)
    used = {
        tensor.ref(): tensor
        for operation in _computing(gradients) - forward
        for tensor in operation.inputs
        if tensor.op in forward & varies - given
    }
    return sorted(used.values(), key=lambda tensor: tensor.name)


def _computing(tensors: Iterable[tf.Tensor]) -> set[tf.Operation]:
    """All operations that are needed for these tensors."""
    found: set[tf.Operation] = set()
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return found


def as_call(function: Callable) -> Callable:
    """The function as one call in a graph, which a compiler translates once; TensorFlow would insert its operations."""
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})
