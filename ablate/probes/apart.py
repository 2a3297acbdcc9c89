"""Probes of how different the outputs of a layer's heads are, as written to the residual stream.

legend: n tokens, H heads, C model width.
"""

import numpy as np
import scipy.linalg

from ablate.probes.shares import FOLDS

SAME = 1e-6  # singular values below this share of the largest count as 0


def effective_ranks(written_nHC: np.ndarray) -> list[float]:
    """The effective rank of each head's output: exp(−Σ p log p), p the share of variance of each direction.
    See: Roy and Vetterli, "The effective rank", 2007."""
    return [effective_rank(np.linalg.eigvalsh(np.cov(one, rowvar=False))) for one in _heads(written_nHC)]


def effective_rank(eigenvalues: np.ndarray) -> float:
    """The effective rank for these eigenvalues of a covariance; 0 if all are 0."""
    shares = np.clip(eigenvalues, 0, None)
    if not shares.sum() > 0:
        return 0.0
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def angles(written_nHC: np.ndarray) -> list[float]:
    """The smallest angle, in degrees, between the subspace in which a head writes and that of all others: 0
    if they share a direction, 90 if they are orthogonal."""
    bases = [_basis(one) for one in _heads(written_nHC)]
    found = []
    for head, mine in enumerate(bases):
        others = [basis for other, basis in enumerate(bases) if other != head and basis.size]
        if not others or not mine.size:
            found.append(90.0)
            continue
        union = scipy.linalg.orth(np.concatenate(others, 1), rcond=SAME)
        found.append(float(np.degrees(scipy.linalg.subspace_angles(mine, union).min())))
    return found


def told_apart(written_nHC: np.ndarray, *, centred: bool) -> list[float]:
    """For each head, how often a linear classifier recognizes its output, on held-out tokens; 1/H by chance.
    centred: subtract each head's mean first, so that only the distribution around it counts."""
    n, H, C = written_nHC.shape
    block = np.arange(n) * FOLDS // n
    right = np.zeros(H)
    # Second moments by block, about means that are near those of each fit.
    near_HC = written_nHC.mean(0)
    blocks = [(written_nHC[block == fold] - near_HC).reshape(-1, C) for fold in range(FOLDS)]
    moments = np.array([each.T @ each for each in blocks])
    for fold in range(FOLDS):
        train, held = written_nHC[block != fold], written_nHC[block == fold]
        means_HC = train.mean(0)
        off_HC = means_HC - near_HC
        within = moments[np.arange(FOLDS) != fold].sum(0) / (len(train) * H) - off_HC.T @ off_HC / H
        if centred:
            train, held, means_HC = train - means_HC, held - means_HC, np.zeros_like(means_HC)
        within += 1e-6 * max(np.trace(within), np.finfo(float).tiny) / len(within) * np.eye(len(within))
        if centred:  # there are no means to use: least squares on one-hot labels of the heads
            labels = np.tile(np.eye(H) - 1 / H, (len(train), 1))
            weights = np.linalg.solve(within, train.reshape(-1, C).T @ labels / (len(train) * H))
            offsets = np.zeros(H)
        else:
            weights = np.linalg.solve(within, means_HC.T)
            offsets = -0.5 * (means_HC.T * weights).sum(0)
        named = (held @ weights + offsets).argmax(-1)
        right += (named == np.arange(H)).sum(0)
    return (right / n).tolist()


def cka(written_nHC: np.ndarray) -> list[float]:
    """For each head, the mean `likeness` to the others. Empty for one head."""
    return over_others(likeness(written_nHC))


def over_others(pairs_HH: np.ndarray) -> list[float]:
    """For each head, the mean over the other heads. Empty for one head."""
    H = len(pairs_HH)
    return [] if H < 2 else ((pairs_HH.sum(1) - np.diag(pairs_HH)) / (H - 1)).tolist()


def likeness(written_nHC: np.ndarray) -> np.ndarray:
    """(H, H) debiased linear CKA of the outputs of two heads: 1 if equal up to rotation and scale, 0 by
    chance. See: Kornblith et al., "Similarity of neural network representations revisited", 2019; Song et
    al., "Feature selection via dependence maximization", 2012, for the unbiased estimate."""
    grams = []
    for one in _heads(written_nHC):
        gram = one @ one.T
        np.fill_diagonal(gram, 0)
        grams.append(gram)
    hsic = np.array([[_unbiased_hsic(a, b) for b in grams] for a in grams])
    scale = np.sqrt(np.clip(np.outer(np.diag(hsic), np.diag(hsic)), 0, None))
    return np.divide(hsic, scale, out=np.zeros_like(hsic), where=scale > 0)


def _unbiased_hsic(a: np.ndarray, b: np.ndarray) -> float:
    """The unbiased HSIC estimate. a, b: (n, n) Gram matrices with a zero diagonal."""
    n = len(a)
    rows_a, rows_b = a.sum(0), b.sum(0)
    trace = (a * b).sum()
    both = rows_a.sum() * rows_b.sum() / ((n - 1) * (n - 2))
    return float((trace + both - 2 / (n - 2) * (rows_a @ rows_b)) / (n * (n - 3)))


def _basis(x_nC: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the deviations of x from its mean."""
    variances, directions = np.linalg.eigh(np.cov(x_nC, rowvar=False))
    return directions[:, variances > SAME**2 * max(variances[-1], np.finfo(float).tiny)]


def _heads(x_nHC: np.ndarray) -> list[np.ndarray]:
    return [x_nHC[:, head] for head in range(x_nHC.shape[1])]
