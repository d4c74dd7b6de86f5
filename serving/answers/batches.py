"""Rows of several texts in one tensor, and back."""

import tensorflow as tf


def padded_rows(count):
    """The least power of two that is at least count, since a model is compiled for each number of texts."""
    return 1 << (count - 1).bit_length()


def stack_rows(tensors, size):
    """Tensors [b, ..] as one, [size, ..]; missing rows repeat the first one."""
    rows = sum(tensor.shape[0] for tensor in tensors)
    if rows < size:
        tensors = [*tensors, tf.repeat(tensors[0][:1], size - rows, axis=0)]
    return stack(tensors)


def split_rows(tensor, begin, end):
    """Rows of a tensor; all of them without a copy."""
    return tensor if (begin, end) == (0, tensor.shape[0]) else tensor[begin:end]


def stack(tensors):
    """Tensors [b, ..] as one."""
    return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=0)
