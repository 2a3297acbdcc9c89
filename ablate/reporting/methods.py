"""What was done, for a paper, in a paragraph. Loads no torch."""

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.variants import USABLE, varying
from ablate.config.contrast import FEWEST
from ablate.phrases import counted, joined, lines_if
from ablate.reporting.words import DECIDED, GROUPED
from ablate.store.columns import on_validation, split_of
from ablate.store.frames import as_texts, is_foreign
from ablate.store.record import StudyRecord

MODEL = ("position", "norm", "mlp", "layers", "d_model", "heads", "context")
TRAINING = ("steps", "batch", "corpus", "tokenizer", "beta1", "lr")
COUNTED = {"layers": "layer", "heads": "head", "steps": "step", "batch": "row"}


def paragraph(comparison: Comparison, record: StudyRecord, development: pd.DataFrame) -> str:
    """A paragraph on what was done. development: the rows that were used to choose values."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    of = {str(column): levels_in_words(rows[column]) for column in rows.columns}
    tested, summary = [one for one in comparison.findings if one.is_tested], comparison.summary
    tuned = record.tuned_column
    if tuned:
        of[tuned] = "each variant's own (below)"
    split = split_of(comparison.metric) or "validation"
    clip = f", gradients clipped at norm {of['clip']}" if of["clip"] else ""
    warms_up = of["warmup"] not in ("", "0", "0.0")
    warmup = f"linear warm-up over {of['warmup']} of the steps, then " if warms_up else ""
    sentences = [f"We {'compare' if comparison.varying else 'train'} {what_differs(comparison, record)}."]
    if all(of[column] for column in (*MODEL, *TRAINING)):  # rows from elsewhere may lack them
        of |= {column: joined(of[column].split(", "), "or") for column in COUNTED}
        of |= {column: f"{of[column]} {noun}{'s' * (of[column] != '1')}" for column, noun in COUNTED.items()}
        widths = f" with keys of {of['key_width']} and values of {of['value_width']}"
        heads = of["heads"] + widths * ("," not in widths)  # else they follow
        sentences += [
            f"Each is a transformer (pre-norm, {of['position']} positions, {of['norm']} norm, {of['mlp']},"
            f" tied embeddings; {of['layers']}, width {of['d_model']}, {heads}, context {of['context']}),"
            f" trained for {of['steps']} of {of['batch']} on {of['corpus']} ({of['tokenizer']} tokens,"
            f" vocabulary {of['vocab']}, fingerprint {of['corpus_sha256'][:12]}) by AdamW (β1 ="
            f" {of['beta1']}, β2 = {of['beta2']}, ε = {of['eps']}, weight decay {of['weight_decay']}) at a"
            f" peak learning rate of {of['lr']}: {warmup}a cosine down to {of['min_lr_ratio']} of the"
            f" peak{clip}, in {of['precision']}.",
            f"Seeds ({of['seed']}) are paired: at equal seeds, variants see the same batches and start from"
            " the same values in every tensor of equal name and shape.",
        ]
    if tuned:
        sentences += _tuning(on_validation(comparison.metric), record, development)
    where = "" if is_foreign(rows) else f" at the last step, over the whole {split} split,"
    sentences.append(f"We report {comparison.metric}{where} as the mean over seeds.")
    if tested:
        level, margin = f"{100 * (1 - stats.ALPHA):g} %", comparison.margin
        within = f" An interval within ±{margin:g} is called equivalent, any other that excludes 0"
        judged = within if margin > 0 else " An interval that excludes 0 is called"
        are_groups, of_two = {one.pairs is None for one in tested}, bool(tested[0].variant.difference)
        how = [*lines_if(False in are_groups, "paired t-intervals")]
        how += lines_if(True in are_groups, "Welch's t-intervals of two groups")
        sentences.append(
            f"Differences{' between differences' * of_two} have {joined(how)}, simultaneous at {level} within"
            f" each family (Bonferroni).{judged} {DECIDED[of_two]}; all others are undecided, as are"
            f" contrasts of fewer than {FEWEST} runs an arm."
        )
        sentences += lines_if(any(one.kinds for one in tested), GROUPED)
        if record.looks:
            taken = joined([*map(str, record.looks.at)])
            sentences.append(
                f"Contrasts were judged at {taken} seeds, named beforehand, by repeated confidence intervals"
                " that spend the level of 5 % linearly in the seeds; what is decided gets no more of them."
            )
        named = "The planned contrasts were named beforehand, all others" if record.contrasts else "All"
        sentences.append(f"{named} are exploratory.")
    if int(summary["diverged"].sum()):
        sentences.append("Diverged runs are in no mean; they are counted beside it.")
    if of["code"]:
        sentences.append(f"Software: ablate {of['ablate']} (code {of['code']}), PyTorch {of['torch']}.")
    return " ".join(sentences)


def what_differs(comparison: Comparison, record: StudyRecord) -> str:
    """How many variants there are, and in what several differ; each has its own value of what is tuned."""
    each = comparison.arrays.each
    factors = [column for column in varying(each) if column != record.tuned_column]
    count = len({one.label(factors) for one in each})
    return counted(count, "variant") + f" that differ in {joined(factors)}" * bool(factors)


def _tuning(metric: str, record: StudyRecord, development: pd.DataFrame) -> list[str]:
    """Sentences on how each arm's value was chosen."""
    column = record.tuned_column
    grid = f" ({levels_in_words(development[column])})" if column in development else ""
    values = [f"{choice.value} for {arm}" for arm, choice in record.chosen.items() if choice.value]
    came = f" (it came to {', '.join(values)})" if values else ""
    return [
        f"Each variant has its own {record.tuned_key}, chosen on the validation split and on development"
        f" seeds ({', '.join(record.development_seeds)}), which report nothing: of the mean"
        f" {metric} at each point of a grid of powers of two{grid}, the same for all variants, the minimum of"
        f" a parabola in log2 {column} through the best point and its neighbours; a point at which a seed"
        f" diverged counts as infinite{came}."
    ]


def levels_in_words(column: pd.Series) -> str:
    levels = [value for value in as_texts(column).unique() if value]
    numbers = pd.to_numeric(pd.Series(levels), errors="coerce")
    return ", ".join(levels if numbers.isna().any() else [levels[at] for at in numbers.argsort()])
