"""Contrasts by the names of a study's arms, as `sum - concat`: written out from the configs of the two."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ablate.compose.composer import Composer, Overrides
from ablate.config.conditions import column_for
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError, did_you_mean, flatten
from ablate.config.schema import RunConfig
from ablate.store.columns import WIDTHS
from ablate.study.config import StudyConfig

AUTO = "auto"  # for which rows have a number, where it is a width


def expanded(config: StudyConfig, levels: Mapping[str, Sequence[str]], configs: Composer) -> StudyConfig:
    """The study with its contrasts by names written out, one for each place where arms differ in what they
    set. levels: of all keys beside its arms. Raises ConfigError."""
    if not any(one.arms and not one.baseline for one in config.primary):
        return config
    places = {
        called: dict(zip(config.named_arms.values(), config.arms_at(place), strict=True))
        for called, place in config.places(levels).items()
    }
    primary = []
    for one in config.primary:
        if one.baseline or not one.arms:
            primary.append(one)
            continue
        for called, arms in places.items():
            written = _written(one.arms, arms if config.arms else {}, configs, config.own_keys)
            primary.append(replace(written, arms=f"{one.arms}{called}"))
    return replace(config, primary=primary)


def _written(
    contrast: str, arms: Mapping[str, Overrides], configs: Composer, of_arms: Collection[str]
) -> Contrast:
    """The contrast of two of these arms. Raises ConfigError."""
    variant, baseline = (_arm(name, contrast, arms) for name in contrast.split(" - "))
    if variant == baseline:
        raise ConfigError(f"study.primary: {contrast}: the same arm twice; name another one")
    others = [arm for arm in arms.values() if arm not in (variant, baseline)]
    try:
        written = between(baseline, variant, configs, others, of_arms)
    except ConfigError as error:
        raise ConfigError(f"study.primary: {contrast}: {error}") from error
    if not written.baseline and written.variants == [{}]:
        raise ConfigError(f"study.primary: {contrast}: both arms are the same; name another one")
    return written


def between(
    baseline: Overrides,
    variant: Overrides,
    configs: Composer,
    others: Sequence[Overrides] = (),
    of_arms: Collection[str] = (),
) -> Contrast:
    """The contrast of two arms, by the keys that these overrides set, or set a group of, and that differ.

    So that none of the other arms is meant, it also has what the two have of the keys that arms set (of_arms)
    where they are equal, and where one of the two has a key that some other arm has, such as an option of a
    fusion. Raises ConfigError.
    """
    base, other, *rest = (_keys(configs(one)) for one in (baseline, variant, *others))
    named = {override.partition("=")[0] for override in (*baseline, *variant)}
    in_both = base.keys() & other.keys()
    differ = {
        key
        for key in in_both
        if base[key] != other[key] and any(key == name or key.startswith(f"{name}.") for name in named)
    }
    if open_ := sorted(key for key in differ if _is_open(key, base[key]) or _is_open(key, other[key])):
        raise ConfigError(f"{open_[0]}={AUTO}: a run has a number in its place; give both arms one")
    alone = (base.keys() ^ other.keys()) & {*of_arms} & {key for one in rest for key in one}
    return Contrast(
        baseline={key: base[key] for key in sorted((differ | alone) & base.keys())},
        variants=[{key: [other[key]] for key in sorted((differ | alone) & other.keys())}],
        where={
            key: [base[key]]
            for key in sorted((in_both & {*of_arms}) - differ)
            if not _is_open(key, base[key])
        },
    )


def _is_open(key: str, value: Any) -> bool:
    """Whether rows have a number in place of this value."""
    return value == AUTO and column_for(key) in WIDTHS


def _keys(config: RunConfig) -> dict[str, Any]:
    """Every key with its value, but for the names of the model and of the text, which decide nothing."""
    names = ("model", "corpus")
    return {key: value for key, value in flatten(asdict(config)).items() if key not in names}


def _arm(name: str, contrast: str, arms: Mapping[str, Overrides]) -> Overrides:
    """The overrides of an arm. Raises ConfigError if there is none of this name."""
    if not arms:
        raise ConfigError(f"study.primary: {contrast}: this study names no arms; list them as study.arms")
    if name not in arms:
        raise ConfigError(f"study.primary: {contrast}: {name} is no arm{did_you_mean(name, arms)}")
    return arms[name]
