"""How much of each head can be recovered from the output of attention.

A head's share is the part of its variance that can be predicted from the fused vector, on held-out text. It
is computed in a basis in which the head has unit variance in every direction (whitened), since the basis of a
head is arbitrary: W_V^i G and G⁻¹W_O^i compute the same. If h independent heads are added up, each keeps its
share of the variance, which is 1/h for equal variances.

legend: n tokens, D dimensions of what is predicted from, E of what is predicted, H heads, V value width.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ablate.config.rules import ConfigError

FOLDS = 5  # contiguous blocks of tokens, each held out once
TOKENS_A_DIMENSION = 10
NEGLIGIBLE = 1e-12  # directions with less than this share of the largest variance are ignored
MOST_BITS = 8.0  # upper bound per dimension: the resolution of bfloat16


def require_tokens(tokens: int, dimensions: int) -> None:
    """Raises ConfigError if there are too few tokens to predict from this many dimensions."""
    if tokens < TOKENS_A_DIMENSION * dimensions:
        raise ConfigError(
            f"{tokens:,} tokens are too few to predict from {dimensions} dimensions: it takes"
            f" {TOKENS_A_DIMENSION * dimensions:,}; give more text, or corpus.splits with a larger share"
        )


@dataclass(frozen=True)
class Fold:
    """Second moments of x, the predictor, and y, the target, in the bases that whiten them on the training
    tokens, about the means of these. xy: on the training tokens. held_…: on the held-out tokens."""

    xy: np.ndarray
    held_xx: np.ndarray
    held_xy: np.ndarray
    held_yy: np.ndarray


def whitener(covariance: np.ndarray) -> np.ndarray:
    """(D, r): the map to a basis with unit variance in all r directions that have any variance."""
    variances, directions = np.linalg.eigh(covariance)
    kept = variances > NEGLIGIBLE * max(variances[-1], np.finfo(float).tiny)
    return directions[:, kept] / np.sqrt(variances[kept])


def folds(fused_nD: np.ndarray, targets: Sequence[np.ndarray]) -> Iterator[list[Fold]]:
    """For each held-out block of tokens, the moments of each target, (n, E), with the fused vector."""
    both = np.concatenate([fused_nD, *targets], 1)
    both = both - both.mean(0)  # for precision; the means of each fit are subtracted below
    blocks = np.array_split(both, FOLDS)
    counts = np.array([len(block) for block in blocks])
    sums, products = np.array([b.sum(0) for b in blocks]), np.array([b.T @ b for b in blocks])
    ends = np.cumsum([fused_nD.shape[1], *(target.shape[1] for target in targets)])
    parts = [slice(*pair) for pair in itertools.pairwise([0, *ends])]
    for fold in range(FOLDS):
        train = np.arange(FOLDS) != fold
        mean = sums[train].sum(0) / counts[train].sum()
        fit = products[train].sum(0) / counts[train].sum() - np.outer(mean, mean)
        apart = np.outer(sums[fold] / counts[fold], mean)
        held = products[fold] / counts[fold] - apart - apart.T + np.outer(mean, mean)
        maps = [whitener(fit[part, part]) for part in parts]
        x, from_x = parts[0], maps[0]
        yield [
            Fold(
                xy=from_x.T @ fit[x, y] @ from_y,
                held_xx=from_x.T @ held[x, x] @ from_x,
                held_xy=from_x.T @ held[x, y] @ from_y,
                held_yy=from_y.T @ held[y, y] @ from_y,
            )
            for y, from_y in zip(parts[1:], maps[1:], strict=True)
        ]


def linear_shares(fused_nD: np.ndarray, targets: Sequence[np.ndarray]) -> list[float]:
    """For each target, (n, E), the held-out R² of least squares: 1 − Σ error² / Σ deviation², at least 0; 0
    for a constant target."""
    errors, deviations = np.zeros(len(targets)), np.zeros(len(targets))
    for fold in folds(fused_nD, targets):
        for at, m in enumerate(fold):
            deviations[at] += np.trace(m.held_yy)
            errors[at] += np.trace(m.held_yy - 2 * m.xy.T @ m.held_xy + m.xy.T @ m.held_xx @ m.xy)
    explained = 1 - np.divide(errors, deviations, out=np.ones(len(targets)), where=deviations > 0)
    return np.clip(explained, 0, 1).tolist()


def dimensions_kept(fused_nD: np.ndarray, read_nHV: np.ndarray) -> float:
    """For all heads together, whitened as one vector: the share that can be recovered times its dimensions.
    Up to noise, at most the rank of the map from the heads to the fused vector."""
    together = read_nHV.reshape(len(read_nHV), -1)
    directions = whitener(np.cov(together, rowvar=False)).shape[1]
    return linear_shares(fused_nD, [together])[0] * directions


def bits_kept(fused_nD: np.ndarray, targets: Sequence[np.ndarray]) -> list[float]:
    """−½ Σ log₂(1 − ρ²) over the canonical correlations ρ of each target with the fused vector: their mutual
    information in bits per token, if both were Gaussian. Directions are fitted on the training tokens and
    correlations measured on the held-out ones; a direction counts at most MOST_BITS."""
    bits = np.zeros(len(targets))
    most = 1 - 4.0**-MOST_BITS
    for fold in folds(fused_nD, targets):
        for at, m in enumerate(fold):
            left, _, right = np.linalg.svd(m.xy, full_matrices=False)
            scale = np.einsum("ik,ij,jk->k", left, m.held_xx, left)
            scale *= np.einsum("ki,ij,kj->k", right, m.held_yy, right)
            rho = np.einsum("ik,ij,kj->k", left, m.held_xy, right)
            squared = np.divide(np.clip(rho, 0, None) ** 2, scale, out=np.zeros(len(rho)), where=scale > 0)
            bits[at] -= 0.5 * np.log2(1 - np.minimum(squared, most)).sum() / FOLDS
    return bits.tolist()


def mlp_shares(fused_nD: np.ndarray, targets: Sequence[np.ndarray], seed: int = 0) -> list[float]:
    """As linear_shares, with a small MLP added to the linear map, and only the last block held out."""
    train = np.arange(len(fused_nD)) < len(fused_nD) * (FOLDS - 1) // FOLDS
    x, x_held = _white(fused_nD, train)
    whitened = [_white(target, train) for target in targets]
    y, y_held = (np.concatenate(part, 1) for part in zip(*whitened, strict=True))
    linear = x.T @ y / len(x)
    rest = _fit(x, y - x @ linear, x_held, np.random.default_rng(seed))
    error = (y_held - x_held @ linear - rest) ** 2
    ends = np.cumsum([part.shape[1] for part, _ in whitened])[:-1]
    pairs = zip(np.split(error, ends, 1), np.split(y_held**2, ends, 1), strict=True)
    return [max(0.0, 1 - e.sum() / d.sum()) if d.size and d.sum() else 0.0 for e, d in pairs]


def shuffled(read_nHV: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """The heads with their tokens shuffled independently, so that no head has information on another."""
    orders = [draws.permutation(len(read_nHV)) for _ in range(read_nHV.shape[1])]
    return np.stack([read_nHV[order, head] for head, order in enumerate(orders)], 1)


HIDDEN, STEPS, BATCH, RATE = 128, 200, 512, 3e-3  # hyper-parameters of the MLP


def _fit(x: np.ndarray, y: np.ndarray, x_held: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """Predictions for x_held of an MLP whose output starts at 0 and that AdamW trains on x and y."""
    inputs, targets, asked = (torch.from_numpy(a.astype(np.float32)) for a in (x, y, x_held))
    first = torch.from_numpy(draws.standard_normal((x.shape[1], HIDDEN), np.float32) / x.shape[1] ** 0.5)
    second = torch.zeros(HIDDEN, y.shape[1])
    weights = [first.requires_grad_(), torch.zeros(HIDDEN, requires_grad=True), second.requires_grad_()]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=1e-2, fused=True)

    def answer(some: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(some @ weights[0] + weights[1]) @ weights[2]

    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        batch = torch.from_numpy(draws.integers(len(x), size=BATCH))
        optimizer.zero_grad()
        (answer(inputs[batch]) - targets[batch]).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        return answer(asked).double().numpy()


def _white(x_nD: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The training tokens and the others, in the basis that whitens the training tokens."""
    centred = x_nD - x_nD[train].mean(0)
    basis = whitener(centred[train].T @ centred[train] / train.sum())
    return centred[train] @ basis, centred[~train] @ basis
