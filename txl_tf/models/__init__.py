"""The models of both families: layers between an embedding and a softmax, or another head."""
