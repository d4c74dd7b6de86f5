"""Not a test: random sequences of tags and what seqeval makes of them, for test_entities.py.

    python -m venv sq && sq/bin/pip install numpy scikit-learn wheel setuptools 'setuptools_scm<9'
    sq/bin/pip install --no-build-isolation seqeval==1.2.2
    sq/bin/python tests/tasks/tagging/seqeval_scores.py > tests/tasks/tagging/seqeval_scores.json

The tests do not require seqeval itself, since pip cannot build it with today's setuptools_scm.
"""

import json

import numpy as np
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

SCORES = {"f1": f1_score, "precision": precision_score, "recall": recall_score, "accuracy": accuracy_score}


def case(rng, letters, wrong):
    """Sequences of random tags, valid or not, copies in which some tags differ, and what seqeval says of them."""
    labels = ["O", *(f"{letter}-{kind}" for kind in ("PER", "ORG-UNIT") for letter in letters)]
    right = [rng.choice(labels, rng.integers(1, 12)).tolist() for _ in range(25)]
    found = [[str(rng.choice(labels)) if rng.random() < wrong else tag for tag in row] for row in right]
    about = {"labels": labels, "right": right, "found": found, "entities": [get_entities(row) for row in right]}
    return about | {"scores": {name: float(score(right, found)) for name, score in SCORES.items()}}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    print(json.dumps([case(rng, letters, wrong) for letters in ("BI", "BIES") for wrong in (0.0, 0.1, 0.5)]))
