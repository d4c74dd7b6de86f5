"""The building blocks: relative positions, attention, feed-forward, embedding and softmax as Keras layers."""
