"""Predicts for all rows of Parquet files on Ray; paths may be gs:// or s3://.

    python ray_predict.py MODEL IN OUT [WORKERS]

On Kubernetes: ray job submit --address=http://HEAD:8265 --working-dir=. -- python ray_predict.py .. All nodes need
txl_tf[engines], and each worker loads the model: give gs://, a name of the Hub, or a folder that all nodes mount.
A worker has nearly a processor and one thread: raise both, or give num_gpus=1. Ray replaces a lost worker.
"""

import sys

import ray

import txl_tf

READING = 0.1  # of a processor, also for writing: workers leave room for both, or Ray would wait for ever


def main(model, source, target, workers=2):
    """Writes OUT, a new folder."""
    predictor = txl_tf.BatchPredictor(model)  # a name of the Hub becomes one commit for all workers
    ray.data.DataContext.get_current().target_max_block_size = 2**20  # small, so that each worker gets rows
    rows = ray.data.read_parquet(source, num_cpus=READING)
    predictor.schema(rows.schema().names)  # a missing model or column is an error here, once
    rows.map_batches(
        txl_tf.BatchPredictor,
        fn_constructor_args=[predictor.model],
        batch_size=1024,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=int(workers)),
        num_cpus=1 - 2 * READING,
        runtime_env={"env_vars": {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}},
    ).write_parquet(target, mode="error", ray_remote_args={"num_cpus": READING})


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except txl_tf.InputError as error:
        sys.exit(f"error: {error}")
