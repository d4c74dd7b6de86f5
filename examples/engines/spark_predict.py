"""Predicts for all rows of Parquet files on Spark; paths may be gs:// or s3a://.

    spark-submit spark_predict.py MODEL IN OUT

On a cluster give --master=yarn or k8s://... PYSPARK_PYTHON is the path of a Python with txl_tf[engines], the same on
all nodes. Java must be 17 or newer. Each Python worker loads the model once: give gs://, a name of the Hub, or a
folder that all nodes mount. TF_NUM_INTRAOP_THREADS below is what spark.task.cpus reserves, usually 1. A lost
executor's tasks run again on others. Spark shows how far it is.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import txl_tf


def main(model, source, target):
    """Writes OUT, a new folder."""
    settings = {
        "spark.executorEnv.TF_NUM_INTRAOP_THREADS": "1",
        "spark.executorEnv.TF_NUM_INTEROP_THREADS": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1024",
        "spark.ui.showConsoleProgress": "true",
    }
    spark = SparkSession.builder.appName("txl_tf").config(map=settings).getOrCreate()
    predictor = txl_tf.BatchPredictor(model)  # a name of the Hub becomes one commit for all workers
    rows = spark.read.parquet(source)
    added = ", ".join(f"`{name}` {kind}" for name, kind in predictor.schema(rows.columns).items())
    schema = StructType(rows.schema.fields + StructType.fromDDL(added).fields)
    parts = rows.repartition(8 * spark.sparkContext.defaultParallelism)  # small parts: a lost one costs little
    parts.mapInPandas(lambda batches: map(predictor, batches), schema).write.parquet(target)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except txl_tf.InputError as error:
        sys.exit(f"error: {error}")
