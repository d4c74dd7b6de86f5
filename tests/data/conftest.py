import numpy as np
import pytest

from txl_tf.data import manifest, records


@pytest.fixture
def make_corpus(tmp_path, monkeypatch):
    """Writes random tokens as a corpus of small shards. Returns (corpus, {split: tokens of its first pass})."""
    monkeypatch.setattr(records, "RECORD_TOKENS", 50)
    monkeypatch.setattr(records, "SHARD_RECORDS", 7)

    def make(tokens, vocab_size=300, passes=1):
        directory, rng = str(tmp_path), np.random.default_rng(0)
        dtype, splits, arrays = records.smallest_dtype(vocab_size), {}, {}
        for name in ("train", "valid"):
            streams = [rng.integers(0, vocab_size, tokens) for _ in range(passes)]
            written = []
            for index, stream in enumerate(streams):
                writer = records.ShardWriter(directory, f"{name}-{index}", dtype)
                for part in np.array_split(stream, 5):
                    writer.add(part)
                written.append(writer.close())
            splits[name], arrays[name] = manifest.Split(tokens, tuple(written)), streams
        manifest.write_manifest(
            manifest.Corpus(
                data_dir=directory,
                dataset="random",
                unit="byte",
                vocab_size=vocab_size,
                cutoffs=(),
                vocabulary_spec={"kind": "bytes"},
                dtype=dtype,
                record_tokens=50,
                shard_records=7,
                splits=splits,
                files={},
                request={},
            )
        )
        return manifest.load_corpus(directory), arrays

    return make
