"""Probes of the outputs of heads: how much of each the output of attention keeps, and how different they are.

A head's share is the part of its variance that can be predicted from the fused vector, on held-out text. It
is computed in a basis in which the head has unit variance in every direction (whitened), since the basis of a
head is arbitrary: W_V^i G and G⁻¹W_O^i compute the same. If h independent heads are added up, each keeps its
share of the variance, which is 1/h for equal variances.

legend: n tokens, D dimensions of what is predicted from, E of what is predicted, H heads, V value width, C
model width; what heads write to the residual stream is (n, H, C).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ablate.config.rules import ConfigError

FOLDS = 5  # blocks of tokens
TOKENS_A_DIMENSION = 10
NEGLIGIBLE = 1e-12  # directions with less than this share of the largest variance are ignored


def require_tokens(tokens: int, dimensions: int) -> None:
    """Raises ConfigError if there are too few tokens to predict from this many dimensions."""
    if tokens < TOKENS_A_DIMENSION * dimensions:
        raise ConfigError(
            f"{tokens:,} tokens are too few to predict from {dimensions} dimensions: it takes"
            f" {TOKENS_A_DIMENSION * dimensions:,}; give more text, or corpus.splits with a larger share"
        )


def whitener(covariance: np.ndarray) -> np.ndarray:
    """(D, r): the map to a basis with unit variance in all r directions that have any variance."""
    variances, directions = np.linalg.eigh(covariance)
    kept = variances > NEGLIGIBLE * max(variances[-1], np.finfo(float).tiny)
    return directions[:, kept] / np.sqrt(variances[kept])


def linear_shares(fused_nD: np.ndarray, targets: Sequence[np.ndarray]) -> list[float]:
    """For each target, (n, E), the held-out R² of least squares: 1 − Σ error² / Σ deviation², at least 0; 0
    for a constant target."""
    errors, deviations = np.zeros(len(targets)), np.zeros(len(targets))
    for (x, x_held), whitened in _folds(fused_nD, targets):
        for at, (y, y_held) in enumerate(whitened):
            deviations[at] += (y_held**2).sum(1).mean()
            errors[at] += ((y_held - x_held @ (x.T @ y / len(x))) ** 2).sum(1).mean()
    explained = 1 - np.divide(errors, deviations, out=np.ones(len(targets)), where=deviations > 0)
    return np.clip(explained, 0, 1).tolist()


def shuffled(read_nHV: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """The heads with their tokens shuffled independently, so that no head has information on another."""
    orders = [draws.permutation(len(read_nHV)) for _ in range(read_nHV.shape[1])]
    return np.stack([read_nHV[order, head] for head, order in enumerate(orders)], 1)


Whitened = tuple[np.ndarray, np.ndarray]  # of the training tokens, and of the others


def held_out(n: int) -> list[np.ndarray]:
    """Masks of contiguous blocks of n tokens, each held out once."""
    return [np.arange(n) * FOLDS // n == fold for fold in range(FOLDS)]


def _folds(fused_nD: np.ndarray, targets: Sequence[np.ndarray]) -> Iterator[tuple[Whitened, list[Whitened]]]:
    """The fused vector and each target, (n, E), whitened, for each block of tokens that is held out."""
    for held in held_out(len(fused_nD)):
        yield _white(fused_nD, ~held), [_white(target, ~held) for target in targets]


def _white(x_nD: np.ndarray, train: np.ndarray) -> Whitened:
    """In the basis that whitens the training tokens."""
    fitted, held = x_nD[train], x_nD[~train]
    mean_D = fitted.mean(0)
    fitted, held = fitted - mean_D, held - mean_D
    basis = whitener(fitted.T @ fitted / len(fitted))
    return fitted @ basis, held @ basis


# --- how different heads are -----------------------------------------------------------------------


def effective_ranks(written_nHC: np.ndarray) -> list[float]:
    """The effective rank of each head's output: exp(−Σ p log p), p the share of variance of each direction; 0
    if it does not vary. See: Roy and Vetterli, "The effective rank", 2007."""
    return [
        _effective_rank(np.linalg.eigvalsh(np.cov(one, rowvar=False))) for one in written_nHC.swapaxes(0, 1)
    ]


def _effective_rank(variances: np.ndarray) -> float:
    shares = np.clip(variances, 0, None)
    if not shares.sum() > 0:
        return 0.0
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def head_id_accuracy(written_nHC: np.ndarray) -> list[float]:
    """For each head, how often a linear classifier recognizes its output, on held-out tokens; 1/H by
    chance."""
    n, H, C = written_nHC.shape
    right = np.zeros(H)
    for held in held_out(n):
        train = written_nHC[~held]
        means_HC = train.mean(0)
        off = (train - means_HC).reshape(-1, C)
        within = off.T @ off / len(off)
        within += 1e-6 * max(np.trace(within), np.finfo(float).tiny) / len(within) * np.eye(len(within))
        weights = np.linalg.solve(within, means_HC.T)
        offsets = -0.5 * (means_HC.T * weights).sum(0)
        named = (written_nHC[held] @ weights + offsets).argmax(-1)
        right += (named == np.arange(H)).sum(0)
    return (right / n).tolist()
