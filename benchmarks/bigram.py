"""The loss of a bigram table, the minimum that a trained language model has to beat.

    python benchmarks/bigram.py [OVERRIDES, such as corpus=stdlib]

Pairs of tokens are counted on the training split, with 0.1 added to every count; losses are in nats per token
on the other splits.
"""

import sys

import hydra
import numpy as np

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.data.corpus import open_corpus


def main() -> None:
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        config = to_run_config(hydra.compose("config", overrides=sys.argv[1:]))
    corpus = open_corpus(config.corpus)
    counts = np.full((corpus.tokenizer.vocab_size, corpus.tokenizer.vocab_size), 0.1)
    train = np.asarray(corpus.tokens("train"))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    log_probability = np.log(counts / counts.sum(1, keepdims=True))
    for name in ("validation", "test"):
        tokens = np.asarray(corpus.tokens(name))
        print(f"{name}: {-log_probability[tokens[:-1], tokens[1:]].mean():.4f} nats per token")


if __name__ == "__main__":
    main()
