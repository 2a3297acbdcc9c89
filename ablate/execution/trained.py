"""What a finished run kept: its weights, and its model with the tokenizer, to compute with, to
generate text, to answer a task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ablate import rng
from ablate.compute.ambient import undisturbed
from ablate.config.read import convert
from ablate.config.rules import AtLeast, AtMost, ConfigError, Count
from ablate.data.corpora import Task, registry
from ablate.data.examples import Examples, batch_of
from ablate.execution.run import SIMULATED, Run
from ablate.execution.stored import Stored, reopened
from ablate.files.atomic import out_of_reach
from ablate.model.models import Model, build_model
from ablate.model.sizing import resolve_spec


class TrainedModel(nn.Module):
    """The model of a finished run in eval mode, on the CPU, in float32, with its tokenizer.

    Called as the network is: token ids (B, T) give logits (B, T, vocabulary); a model of pairs takes the ids
    of the source (B, S) as `source_BS`. The names in its state_dict are those of model.safetensors.
    """

    def __init__(self, network: Model, stored: Stored) -> None:
        super().__init__()
        self.tokenizer, self.config, self.stored = stored.tokenizer, stored.config, stored
        # Only the network's parts are registered, so that weights bear the names that they have on disk.
        self.__dict__["network"] = network
        for name, module in network.named_children():
            self.add_module(name, module)
        self.eval()

    network: Model

    def forward(
        self, tokens_BT: Tensor, target_positions_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        return self.network(tokens_BT, target_positions_K, source_BS)

    def encode(self, text: str) -> Tensor:
        """The token ids of a text, (T,) int64. Raises ConfigError for text that the vocabulary lacks."""
        return torch.from_numpy(self.tokenizer.encode(text).astype(np.int64))

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """The text of token ids, (T,)."""
        return self.tokenizer.decode(ids)

    @undisturbed()
    @torch.no_grad()
    def generate(
        self, prompt: str | None = None, *, tokens: int = 300, temperature: float = 1.0, seed: int = 0
    ) -> str:
        """The prompt, continued by `tokens` tokens; of a model of pairs, its likeliest answer to the prompt,
        token by token.

        prompt: None is a line end, or the first token of a vocabulary without one. temperature: 0 takes the
        likeliest token. Raises ConfigError.
        """
        convert(Count, tokens, "tokens")
        convert(Annotated[float, AtLeast(0), AtMost(1000)], temperature, "temperature")
        if self.config.model.two_texts:
            return self.decode(answer(self, self.encode(prompt or "")))
        if prompt is None:
            newline = "\n" in self.decode(range(self.tokenizer.vocab_size))
            prompt = "\n" if newline else self.decode([0])
        ids = self.encode(prompt).tolist()
        if not ids:
            raise ConfigError("the prompt is empty; give at least one character")
        device = next(self.parameters()).device
        for position in range(tokens):
            window_T = torch.tensor(ids[-self.config.model.context :], device=device)
            logits = self(window_T[None])[0, -1].cpu().double().numpy()
            ids.append(_draw(logits, temperature, rng.generator(seed, "sample", position)))
        return self.decode(ids)


@torch.no_grad()
def answer(model: TrainedModel, source_S: Tensor) -> Tensor:
    """The ids, (T,), with which a model of pairs answers those of a source: greedily, up to the separator or
    until the context is full. Raises ConfigError."""
    context, separator = model.config.model.context, model.tokenizer.separator
    if not 1 <= len(source_S) <= context:
        raise ConfigError(f"the prompt has {len(source_S)} tokens; give 1 to {context}, for model.context")
    source_1S = source_S[None].to(next(model.parameters()).device)
    ids_1T = torch.full((1, 1), separator, device=source_1S.device)
    while ids_1T.shape[1] < context:
        likeliest_11 = model.network(ids_1T, None, source_1S)[:, -1:].argmax(-1)
        if likeliest_11 == separator:
            break
        ids_1T = torch.cat([ids_1T, likeliest_11], 1)
    return ids_1T[0, 1:]


def load_model(directory: Path, *, code: bool = False) -> TrainedModel:
    """The model of the finished run in this directory; its text is not opened. code: as for `reopened`.
    Raises ConfigError if it kept no weights, is damaged, or needs a plugin that is not loaded."""
    if not (directory / "config.yaml").exists():
        raise ConfigError(f"{directory}: no run is in this directory; ablate runs lists the runs")
    stored, weights = reopened(directory, code=code), weights_of(directory)
    spec = resolve_spec(stored.config, stored.tokenizer.vocab_size)
    try:
        network = build_model(spec, stored.config.resolved_seeds())
        network.load_state_dict(weights)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise out_of_reach(directory / "model.safetensors", error) from error
    return TrainedModel(network, stored)


def example(model: TrainedModel, row: int, prompt: str | None = None) -> str | None:
    """Row `row` of the test split (of validation without one) with the model's likeliest answers, in lines:
    an example of a task, or a pair, of which a prompt takes the place. None for a model that continues
    text."""
    if model.config.model.two_texts:
        if prompt is not None:
            return _answered(model, {"source": prompt})
    elif prompt is not None or not issubclass(registry.named(model.config.corpus.recipe), Task):
        return None
    splits = model.stored.corpus().splits
    split = splits["test"] if splits["test"].size else splits["validation"]
    assert isinstance(split, Examples)
    chosen = split.held_out[row % len(split.held_out)]
    if chosen.source is not None:
        texts = map(model.tokenizer.decode, chosen.question_and_answer)
        return _answered(model, dict(zip(("source", "target"), texts, strict=True)))
    inputs, targets, positions, _ = batch_of([chosen])
    with torch.no_grad():
        answers = model(inputs, positions).argmax(-1).tolist()
    lines = [" ".join(map(str, inputs[0].tolist()))]
    for place, answer in zip(positions.tolist() if positions is not None else [], answers, strict=True):
        wanted = targets[0, place].item()
        verdict = "right" if answer == wanted else f"it is {wanted}"
        lines.append(f"position {place + 1}, {inputs[0, place].item()}: {answer}, {verdict}")
    return "\n".join(lines)


def _answered(model: TrainedModel, texts: Mapping[str, str]) -> str:
    lines = {**texts, "answer": model.generate(texts["source"])}
    return "\n".join(f"{name:<8}{text}" for name, text in lines.items())


def _draw(logits: np.ndarray, temperature: float, draws: np.random.Generator) -> int:
    """Draw an index from softmax(logits / temperature)."""
    if temperature == 0:
        return int(logits.argmax())
    with np.errstate(over="ignore"):  # at a tiny temperature all but the likeliest go to −∞, as intended
        weights = np.exp((logits - logits.max()) / temperature)
    return int(draws.choice(len(weights), p=weights / weights.sum()))


# --- what a finished run kept -----------------------------------------------------------------------


def weights_of(directory: Path) -> dict[str, Tensor]:
    """The trained weights by name. Raises ConfigError if the run kept none, or they are damaged."""
    require_weights(directory)
    path = directory / "model.safetensors"
    try:
        return safetensors.torch.load_file(path)
    except (OSError, SafetensorError, MemoryError) as error:
        raise out_of_reach(path, error) from error


def require_weights(directory: Path) -> None:
    """Raises ConfigError if the run kept no trained weights."""
    if directory.name.startswith(SIMULATED):
        raise ConfigError(f"{directory.name}: no model was trained (train=simulated); take another run")
    if not (directory / "model.safetensors").exists():
        raise ConfigError(
            f"{directory.name}: it kept no weights (it did not finish, or train.save=none); take another run"
        )


def in_float64(run: Run) -> Model:
    """The run's model before training, in float64, with the default product and attention, since the ones
    chosen for speed may only support float32."""
    return build_model(run.spec, run.config.resolved_seeds()).double().eval()
