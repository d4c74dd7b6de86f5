"""Learns to sort texts into classes from a table: python examples/table.py TABLE.csv FOLDER.

The table is a CSV file in UTF-8, with commas and the columns text and label. The model is xlnet-base-cased, which is
fetched from the Hub on first use.
"""

import csv
import sys

import txl_tf


def main(table, folder, init="xlnet/xlnet-base-cased", **settings):
    """Fine-tunes, then classifies the table's first texts. settings: of training, as train_steps=600."""
    tuner = txl_tf.Finetuner(init, "classification", table, settings={"train": settings})
    result = tuner.run(folder)
    print(f"accuracy on the tenth of the table that was held out: {result['accuracy']:.2f}")
    model = txl_tf.load(folder)
    with open(table, newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)][:3]
    for text, found in zip(texts, model.predict(texts), strict=True):
        print(f"{found['label']} ({found['probability']:.2f}): {text[:60]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
