import tensorflow as tf

from txl_tf.ops.gradients import custom_gradient, without_custom_gradients


@custom_gradient
def doubled(x):
    return 2 * x, lambda d_y: 100 * d_y


def test_where_no_gradient_is_wanted_there_is_the_result_alone():
    def operations():
        graph = tf.function(doubled).get_concrete_function(tf.TensorSpec([], tf.float32)).graph.as_graph_def()
        return [node.op for node in graph.node], str(graph)

    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = doubled(x)
    assert (float(y), float(tape.gradient(y, x))) == (6, 100)
    _, with_gradient = operations()
    with without_custom_gradients():
        assert float(doubled(x)) == 6
        names, without = operations()
    assert "CustomGradient" in with_gradient and "CustomGradient" not in without
    assert "Mul" in names and "CustomGradient" in operations()[1]
