"""Predicts for all rows of Parquet files on Apache Beam.

    python beam_predict.py MODEL IN OUT [flags of Beam]

On Dataflow add --runner=DataflowRunner --project=P --region=R --temp_location=gs://B/tmp --sdk_container_image=I. The
image has txl_tf[beam]. IN is such as gs://B/rows/*.parquet; OUT is the beginning of names. Each process loads the model
once: give gs:// or a name of the Hub. Dataflow starts a process for each processor of a worker, so set
TF_NUM_INTRAOP_THREADS=1 in the image. It does a lost worker's rows again; Beam's runner for one machine waits for the
worker for ever, and the DaskRunner loses rows. Dataflow shows how far it is; here each process says it once a minute.
"""

import logging
import sys
import time

import apache_beam as beam
import pyarrow
from apache_beam.io import filesystems
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions
from pyarrow import parquet

import txl_tf


class TableModelHandler(ModelHandler):
    """Rows, as dicts, to rows with the columns of a BatchPredictor."""

    def __init__(self, predictor, schema):
        super().__init__(min_batch_size=64, max_batch_size=1024)
        self._predictor, self._schema, self._done, self._said = predictor, schema, 0, 0.0

    def load_model(self):
        """The BatchPredictor, which loads the model at its first batch, once in a process."""
        return self._predictor

    def run_inference(self, batch, model, inference_args=None):
        """The rows of a batch with the new columns."""
        found = model(pyarrow.Table.from_pylist(batch, self._schema)).to_pylist()
        self._done += len(found)
        if time.monotonic() - self._said > 60:
            logging.warning("%d rows predicted by this process", self._done)
            self._said = time.monotonic()
        return found


def main(model, source, target, *flags):
    """Writes files whose names begin with OUT."""
    predictor = txl_tf.BatchPredictor(model)  # a name of the Hub becomes one commit for all workers
    (first, *_) = filesystems.FileSystems.match([source])[0].metadata_list
    with filesystems.FileSystems.open(first.path) as file:
        schema = parquet.read_schema(file)
    written = predictor(schema.empty_table()).schema  # a missing model or column is an error here, once
    with beam.Pipeline(options=PipelineOptions(list(flags))) as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromParquet(source)
            | beam.Reshuffle()
            | "key" >> beam.Map(lambda row: (row[schema.names[0]], row))
            | RunInference(KeyedModelHandler(TableModelHandler(predictor, schema)))
            | beam.Values()
            | beam.io.WriteToParquet(target, written, file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except txl_tf.InputError as error:
        sys.exit(f"error: {error}")
