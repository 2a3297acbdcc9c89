"""Generate text with a trained run, or show its answers to an episode of a task."""

from pathlib import Path

import numpy as np
import torch

from ablate import rng
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig, RunConfig
from ablate.data import tokenizers
from ablate.data.corpora import open_corpus
from ablate.data.episodes import Episodes
from ablate.data.paired import Paired
from ablate.data.tasks import TASKS
from ablate.execution.kept import config_of, damaged, weights_of
from ablate.execution.translate import translated
from ablate.model.blocks import Model
from ablate.model.build import empty_model
from ablate.model.resolve import resolve_spec
from ablate.store.store import Store


def sample(
    run: str, prompt: str | None, *, tokens: int, temperature: float, top_k: int | None, seed: int
) -> str:
    """The prompt, continued by `tokens` tokens from the model of `run`.

    run: a prefix of the run's id or directory name. prompt: None is a line end, or the first token if the
    vocabulary has no line end; for a task, None shows episode `seed` of the test split with the likeliest
    answers. temperature: 0 takes the likeliest token. Raises ConfigError.
    """
    model, tokenizer, config = _load(Store().find(run))
    if config.model.architecture != "decoder":
        return _translation(model, config, prompt, seed)
    if prompt is None and config.corpus.name in TASKS:
        return _answers(model, config.corpus, seed)
    if prompt is None:
        prompt = (
            "\n"
            if "\n" in tokenizer.decode(np.arange(tokenizer.vocab_size))
            else tokenizer.decode(np.array([0]))
        )
    ids = [int(token) for token in tokenizer.encode(prompt)]
    if not ids:
        raise ConfigError("--prompt: it is empty; give at least one character")
    for position in range(tokens):
        with torch.no_grad():
            logits = model(torch.tensor([ids[-config.model.context :]]))[0, -1].double().numpy()
        ids.append(_draw(logits, temperature, top_k, rng.generator(seed, "sample", position)))
    return tokenizer.decode(np.array(ids))


def _translation(model: Model, config: RunConfig, prompt: str | None, row: int) -> str:
    """A source and its translation: of the prompt, or of test pair `row`, which is shown with its target."""
    corpus = open_corpus(config.corpus, config.model)
    split = corpus.splits["test"] if corpus.splits["test"].size else corpus.splits["validation"]
    assert isinstance(split, Paired)
    if prompt is not None:
        source, told = corpus.tokenizer.encode(prompt), []
        if not 0 < split.layout.positions(len(source), 0) <= config.model.context or not len(source):
            raise ConfigError(
                f"--prompt: {len(source)} tokens; give 1 to {config.model.context - 1}, for model.context"
            )
    else:
        pairs = split.pairs.held_out()
        source, target = pairs[row % len(pairs)]
        told = [f"target       {corpus.tokenizer.decode(target)}"]
    (said,) = translated(model, split, [source], config.model.context)
    lines = [f"source       {corpus.tokenizer.decode(source)}", *told]
    return "\n".join([*lines, f"translation  {corpus.tokenizer.decode(said)}"])


def _answers(model: Model, corpus: CorpusConfig, row: int) -> str:
    """An episode, and a line for each of its positions that is asked about."""
    splits = open_corpus(corpus).splits
    split = splits["test"] if splits["test"].size else splits["validation"]
    assert isinstance(split, Episodes)
    inputs, targets, asked, _ = split.rows(corpus.seed or 0, np.array([row % (split.count or 1)]))
    with torch.no_grad():
        given = model(inputs, asked).argmax(-1).tolist()
    lines = [" ".join(map(str, inputs[0].tolist()))]
    for place, answer in zip(asked.tolist() if asked is not None else [], given, strict=True):
        wanted = targets[0, place].item()
        verdict = "right" if answer == wanted else f"it is {wanted}"
        lines.append(f"position {place + 1}, {inputs[0, place].item()}: {answer}, {verdict}")
    return "\n".join(lines)


def _load(directory: Path) -> tuple[Model, tokenizers.Tokenizer, RunConfig]:
    config, weights = config_of(directory), weights_of(directory)
    try:
        tokenizer = tokenizers.load(directory / "tokenizer.json")
        model = empty_model(resolve_spec(config, tokenizer.vocab_size))
        model.load_state_dict(weights)
    except (ValueError, RuntimeError) as error:
        raise damaged(directory, error) from error
    return model.eval(), tokenizer, config


def _draw(logits: np.ndarray, temperature: float, top_k: int | None, draws: np.random.Generator) -> int:
    """Draw an index from softmax(logits / temperature), restricted to the top_k largest."""
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits = np.where(logits >= np.sort(logits)[-top_k], logits, -np.inf)
    with np.errstate(over="ignore"):  # at a tiny temperature all but the likeliest go to −∞, as intended
        weights = np.exp((logits - logits.max()) / temperature)
    return int(draws.choice(len(weights), p=weights / weights.sum()))
