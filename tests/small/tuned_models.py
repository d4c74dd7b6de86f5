"""model_dirs of XLNets with heads and random weights, large enough to matter, for tests of inference."""

import numpy as np
import random_xlnet
import tensorflow as tf

from txl_tf import families
from txl_tf.data.examples.example_set import ExampleSet, TaskCorpus
from txl_tf.data.vocabularies import XLNetVocabulary
from txl_tf.runs import checkpoints, model_dir

SIZES = {"n_layer": 2, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "mem_len": 0, "reuse_len": 0}


def write_model_dir(path, task, labels=(), max_segments=1, **model):
    """Writes a model_dir for a task, T = 24; its Config."""
    vocabulary = random_xlnet.with_prefix(XLNetVocabulary)
    classes = {"n_class": len(labels)} if labels else {}
    data = {"max_query_len": 6, "doc_stride": 5} if task == "answering" else {}
    if max_segments > 1:
        data["max_segments"] = max_segments
        model |= {"mem_len": 24 * (max_segments - 1), "mem_init": "empty"}
    config = families.tuned_configs()[task].from_groups({}, "test")
    config = config.replace(
        model=SIZES | {"vocab_size": vocabulary.vocab_size} | classes | model,
        data={"tgt_len": 24} | data,
        eval={"batch_size": 4},
    )
    network, draw = families.make_model(config), np.random.default_rng(0)
    for variable in network.trainable_variables:
        centre = 1.0 if "gamma" in variable.path else 0.0
        variable.assign(draw.normal(centre, 0.1 if len(variable.shape) == 1 else 0.5, variable.shape))
    nothing = ExampleSet({}, {}, labels=tuple(labels))
    model_dir.write_description(str(path), config, TaskCorpus(nothing, nothing, vocabulary, vocabulary.spec, {}))
    weights = tf.train.Checkpoint(model=checkpoints.variables_by_path(network))
    weights.write(checkpoints.checkpoint_path(str(path), 0))
    return config
