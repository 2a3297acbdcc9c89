"""The best losses on corpus=lags for readers who know some of the lagged letters, in nats per letter.

    python benchmarks/lags.py [OVERRIDES, such as corpus.lags=[1,4] model.context=32]

They are computed exactly, and from the counts of the text itself, as a mean over windows of model.context.
The readers are defined in ablate/data/lags.py.
"""

import sys

import hydra
import numpy as np

from ablate.compose.configs import configs_dir
from ablate.compose.variants import to_run_config
from ablate.config.rules import ConfigError
from ablate.data.corpora import open_corpus
from ablate.data.lags import counted_floors, floors


def main() -> None:
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        config = to_run_config(hydra.compose("config", overrides=["corpus=lags", *sys.argv[1:]]))
    corpus, c, context = open_corpus(config.corpus), config.corpus, config.model.context
    assert c.seed is not None and c.lags and c.symbols
    letters = np.concatenate([corpus.tokens(split) for split in corpus.splits])
    counted = counted_floors(letters, c.seed, c.lags, c.symbols, context)
    try:
        exact = floors(c.seed, c.lags, c.symbols, context)
    except ConfigError as error:
        print(error)
        exact = {}
    print(f"{'knows':<12}{'algebra':>10}{'counted':>10}")
    for reader, loss in counted.items():
        print(f"{reader:<12}{exact.get(reader, float('nan')):>10.4f}{loss:>10.4f}")


if __name__ == "__main__":
    main()
