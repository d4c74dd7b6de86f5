"""Names that a user chooses among, in one place for flags and checks. Loads no TensorFlow."""

STRATEGIES = ("auto", "tpu", "mirrored", "multi_worker", "one_device")
"""How replicas are made: `distribute.make_strategy`."""
ONE_PROCESS_STRATEGIES = tuple(name for name in STRATEGIES if name != "multi_worker")
"""Strategies of programs that run in one process."""
CHECKPOINTS = ("latest", "best")
"""Which checkpoint of a model_dir: the newest, or the one with the lowest loss on valid."""
WEIGHTS = ("last", "average")
"""Which weights of a checkpoint: those after its last update, or their average over updates."""
DTYPES = ("float32", "mixed_bfloat16", "mixed_float16", "float64")
"""Keras's dtype policies of the computation."""
QUANTIZE = ("int8",)
"""The types that weights of layers can be rounded to for inference."""
OPS = ("plain", "proven", "fewer", "fused")
"""The implementations of operations: `platform.using`."""
CORPORA = ("enwik8", "text8", "wt103", "wt2", "ptb", "lm1b")
"""The published corpora; `data.text.corpora.CORPORA` describes each."""
DATASETS = ("python_stdlib", *CORPORA, "text")
"""The corpora that a model can be trained on; "text" is the user's own."""
VOCABULARIES = ("bytes", "chars", "words", "sentencepiece", "xlnet")
"""Kinds of token."""
DOCUMENTS = ("file", "blank_line")
"""The separators of documents in the user's own text."""
SPLIT_RULES = ("names", "shares")
"""How the user's own files are assigned to splits."""
RUNNERS = ("local", "beam")
"""Where a corpus is prepared: in this process, or by Apache Beam on many machines."""
IMPORT_FORMATS = ("official_tf", "official_pytorch", "huggingface", "official_xlnet")
"""Whose checkpoints can be read."""
EXPORT_FORMATS = ("huggingface",)
"""Whose checkpoints can be written."""
