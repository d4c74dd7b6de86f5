"""Corpora, vocabularies, TFRecord shards and the tf.data pipeline that reads them."""
