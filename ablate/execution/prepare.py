"""From a config to a run that can begin. Everything that can be refused is refused here."""

import dataclasses
import functools

import torch

from ablate.compute import device
from ablate.compute.compiler import why_not
from ablate.compute.fastest import fastest_product
from ablate.compute.products import PRODUCTS, works
from ablate.config.identity import Identity, run_name
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig, ModelConfig, RunConfig
from ablate.data.corpora import Corpus, open_corpus, require_usable
from ablate.execution.formulation import fastest_attention
from ablate.execution.memory import require_memory
from ablate.execution.run import Resolved, Run
from ablate.execution.translate import require_sacrebleu
from ablate.model.resolve import resolve_spec, resolved


class Prepared:
    """A run, and the runs that differ from it only in seeds, which can begin whenever it can.

    Everything that can be refused is refused here, before anything is trained. elsewhere: another machine
    will train it, so the run is only resolved, and nothing is asked of this one. Raises ConfigError.
    """

    def __init__(self, config: RunConfig, *, elsewhere: bool = False) -> None:
        if not elsewhere:
            device.pick(
                config.device
            )  # a wrong device should not wait for a text to be read, nor a wrong size
        resolve_spec(dataclasses.replace(config, match="none"), vocab=1)  # only a match needs its vocabulary
        corpus = _corpus(config.corpus, config.model)
        require_usable(corpus, config.model.context)
        spec = resolve_spec(config, corpus.tokenizer.vocab_size)
        _require_two_texts(config)
        config = resolved(config, spec)
        self._identity = Identity(config, vocab=spec.vocab, corpus_sha256=corpus.sha256)
        run_id = self._identity.of(config)
        run = Resolved(config, spec, corpus, run_id, run_name(config, run_id))
        self.run = run if elsewhere else placed(run)

    def with_seeds(self, config: RunConfig) -> Resolved:
        """The run with the seeds of `config`."""
        config = dataclasses.replace(self.run.config, seed=config.seed, seeds=config.seeds)
        run_id = self._identity.of(config)
        return dataclasses.replace(self.run, config=config, run_id=run_id, name=run_name(config, run_id))


def prepare(config: RunConfig) -> Run:
    """The run that a config asks for. Raises ConfigError if it can't begin."""
    run = Prepared(config).run
    assert isinstance(run, Run)
    return run


def placed(run: Resolved) -> Run:
    """The run on this machine. Raises ConfigError if it can't begin here."""
    config, place = run.config, device.pick(run.config.device)
    linear, attention = linear_of(config, place), attention_of(config, place)
    train = run.corpus.splits["train"]
    if not train.is_ragged:  # every step is of the same size
        require_memory(run.spec, config.train, place, attention, train.asked_share)
    if config.train.translate:
        require_sacrebleu()
    _require_compiler(config, place)
    return Run(run.config, run.spec, run.corpus, run.run_id, run.name, place, linear, attention)


def linear_of(config: RunConfig, place: torch.device) -> str:
    """The implementation of matrix products for a run (Run.linear); only float32 on the CPU has a choice.
    Raises ConfigError."""
    if place.type != "cpu" or config.train.precision != "float32":
        return "torch"
    if config.train.linear == "onednn" and not works(PRODUCTS["onednn"]):
        raise ConfigError(
            "train.linear=onednn: this PyTorch lacks it, or it is not exact; use train.linear=mkl"
        )
    if config.train.linear != "auto":
        return config.train.linear
    return "mkl" if config.train.compile else fastest_product()


def attention_of(config: RunConfig, place: torch.device) -> str:
    """The formulation of attention for a run (Run.attention); `auto` has a choice only for bfloat16 on the
    CPU."""
    if config.train.attention != "auto":
        return config.train.attention
    has_choice = place.type == "cpu" and config.train.precision == "bfloat16"
    return fastest_attention() if has_choice else "fused"


def _require_two_texts(config: RunConfig) -> None:
    if config.train.translate and config.model.architecture == "decoder":
        raise ConfigError(
            f"train.translate=true: model={config.model.name} reads one text; take model=pair or"
            " model=prefix, or leave it out"
        )


def _require_compiler(config: RunConfig, place: torch.device) -> None:
    if not config.train.compile:
        return
    if config.model.architecture != "decoder":
        raise ConfigError(
            f"train.compile=true: batches of pairs come in many lengths, and model={config.model.name} would"
            " be compiled for each; leave it out"
        )
    if reason := why_not(place):
        raise ConfigError(f"train.compile=true: {reason}, or leave it out")
    if place.type == "cpu" and (config.train.precision, config.train.linear) == ("float32", "onednn"):
        raise ConfigError(
            "train.compile=true train.linear=onednn: torch.compile can't follow oneDNN's product;"
            " use train.linear=mkl"
        )


@functools.lru_cache(maxsize=4)
def _corpus(config: CorpusConfig, model: ModelConfig) -> Corpus:
    """The corpus as this model reads it, opened once for all runs of a process."""
    return open_corpus(config, model)
