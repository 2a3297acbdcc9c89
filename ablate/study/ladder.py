"""The kind `ladder`: the same arms at several sizes of the model, and a prediction for the largest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from ablate.compose.composer import Composer
from ablate.config.contrast import Contrasts
from ablate.config.rules import Above, AtLeast, ConfigError, ErrorText, as_override, did_you_mean
from ablate.config.schema import RunConfig
from ablate.model.spec import MATRICES, standard_hidden
from ablate.phrases import counted
from ablate.store.columns import column_named
from ablate.store.record import Rung
from ablate.study.ladder_design import LadderDesign
from ablate.study.tuned import Tuned

PRESETS = "rung"  # the folder of the group `model`
# What no arm can set for itself.
OF_A_RUNG = {"model", "model.d_model", "model.layers", "model.context", "train.steps", "train.batch"}
FEWEST, SPAN = 3, 4  # rungs, and by what factor their sizes have to differ


@dataclass(frozen=True, kw_only=True)
class Ladder(Tuned):
    """rungs: presets in configs/model/rung, the smallest first; the last one is predicted. tokens: training
    tokens for each parameter. epochs: how often a run may read its text at most. head_width: by which
    d_model of a rung gives its heads, for arms that set none. seeds_a_rung: how many of the seeds report at
    each rung. baseline: the arm that all others are compared with. tuned_rungs: so many of the lowest rungs
    tune each arm. checked_rungs: so many of those that follow check what is predicted for them."""

    kind: ClassVar[str] = "ladder"
    example: ClassVar[str] = "ladder"

    rungs: Annotated[list[str], ErrorText("write a list of presets in configs/model/rung, as [r1, r2, r3]")]
    tokens: Annotated[float, Above(0), ErrorText("training tokens for each parameter, as 20")] = 20.0
    epochs: Annotated[float, Above(0), ErrorText("how often a run may read its text, as 4")] = 4.0
    head_width: Annotated[int, AtLeast(1), ErrorText("the width of a head, as 16")] = 16
    seeds_a_rung: Annotated[list[int], ErrorText("write how many seeds report at each rung, as [6, 6, 4]")]
    baseline: str
    tuned_rungs: Annotated[int, AtLeast(2), ErrorText("how many rungs tune each arm; a line takes 2")] = 2
    checked_rungs: Annotated[int, AtLeast(0), ErrorText("how many rungs check a prediction, as 2")] = 2
    primary: Contrasts = field(default_factory=list)
    report_at: list[Literal["tuned"]] = field(default_factory=lambda: ["tuned"])

    def __post_init__(self) -> None:
        super().__post_init__()
        shown, seeds = (f"study.{key}={as_override(getattr(self, key))}" for key in ("rungs", "seeds_a_rung"))
        if len(self.rungs) < FEWEST:
            raise ConfigError(
                f"{shown}: {counted(len(self.rungs), 'rung')}; a prediction takes {FEWEST}, of which the last"
                " one is predicted"
            )
        if len(self.seeds_a_rung) != len(self.rungs):
            raise ConfigError(
                f"{seeds}: {counted(len(self.seeds_a_rung), 'number')} for {len(self.rungs)} rungs, {shown};"
                " give one for each"
            )
        if min(self.seeds_a_rung) < 2:
            raise ConfigError(f"{seeds}: name at least 2 seeds for each rung, which an interval takes")
        if self.seeds and max(self.seeds_a_rung) > len(self.seeds):
            raise ConfigError(f"{seeds}: study.seeds lists only {len(self.seeds)}")
        if self.tuned_rungs >= len(self.rungs):
            raise ConfigError(
                f"study.tuned_rungs={self.tuned_rungs}: the last of {len(self.rungs)} rungs is predicted, so"
                f" at most {len(self.rungs) - 1} tune"
            )
        if column_named(self.metric).unit != "nats":
            raise ConfigError(f"study.metric={self.metric}: a ladder predicts losses in nats; use test_loss")
        if self.baseline not in self.arms:
            near = did_you_mean(self.baseline, self.arms)
            raise ConfigError(f"study.baseline={self.baseline}: no arm{near}")
        for name, arm in self.arms.items():
            if taken := sorted(OF_A_RUNG & arm.keys()):
                raise ConfigError(f"study.arms: {name} sets {taken[0]}, which its rungs set; leave it out")
        if len(self.arms) < 2:
            raise ConfigError(f"study.arms: {self.baseline} alone; a ladder compares other arms with it")

    @property
    def seeds_at_most(self) -> int:
        return max(self.seeds_a_rung)

    def design(self, levels: Mapping[str, Sequence[str]], configs: Composer) -> LadderDesign:
        if self.primary or self.looks:
            raise ConfigError(
                f"study.{'primary' if self.primary else 'looks'}: a ladder compares each arm with"
                " study.baseline at every rung, on all of the rung's seeds; leave it out"
            )
        given = {key: values for key, values in levels.items() if key not in (self.tune, "seed")}
        for key, values in given.items():
            if len(values) > 1:
                raise ConfigError(
                    f"{key}={','.join(values)}: a ladder compares its arms, at one value of every other key;"
                    " give one, or write arms"
                )
        if taken := {"model", "heads", "train.steps"} & given.keys():
            raise ConfigError(f"{min(taken)}={given[min(taken)][0]}: the rungs set it; leave it out")
        tuned = self.tuned_design(levels)
        report = tuned.levels["seed"]
        if max(self.seeds_a_rung) > len(report):
            raise ConfigError(
                f"seed={','.join(report)}: {counted(max(self.seeds_a_rung), 'seed')} report"
                " (study.seeds_a_rung); list as many"
            )
        presets = configs.options(f"model/{PRESETS}")
        if unknown := [name for name in self.rungs if name not in presets]:
            raise ConfigError(f"study.rungs: {unknown[0]}: no such preset{did_you_mean(unknown[0], presets)}")
        fixed = [f"{key}={values[0]}" for key, values in given.items()]
        rungs = [
            self._rung(name, configs((*fixed, f"model={PRESETS}/{name}")), report[:count])
            for name, count in zip(self.rungs, self.seeds_a_rung, strict=True)
        ]
        sizes = [rung.size for rung in rungs]
        shown = ", ".join(f"{rung.name} has {rung.size:,} parameters" for rung in rungs)
        if sorted({*sizes}) != sizes:
            raise ConfigError(
                f"study.rungs={as_override(self.rungs)}: not in growing order ({shown}); list the smallest"
                f" first"
            )
        if sizes[-1] < SPAN * sizes[0]:
            raise ConfigError(
                f"study.rungs={as_override(self.rungs)}: {sizes[-1] / sizes[0]:.2g} times as many"
                f" parameters at the"
                f" top as at the bottom ({shown}); a prediction takes a factor of {SPAN}"
            )
        return LadderDesign(tuned.levels, tuned.arms, rungs=rungs, study=self, configs=configs)

    def _rung(self, name: str, config: RunConfig, seeds: Sequence[str]) -> Rung:
        """The rung of this preset. config: of the preset."""
        model, train = config.model, config.train
        hidden = standard_hidden(model.d_model, model.mlp) if model.mlp_hidden == "auto" else model.mlp_hidden
        size = model.layers * (4 * model.d_model**2 + MATRICES[model.mlp] * model.d_model * int(hidden))
        if model.d_model % self.head_width:
            raise ConfigError(
                f"study.head_width={self.head_width}: it does not divide d_model={model.d_model} of"
                f" model={PRESETS}/{name}"
            )
        a_step = train.batch * model.context
        steps = math.ceil(self.tokens * size / a_step)
        overrides = [
            f"model={PRESETS}/{name}",
            f"heads={model.d_model // self.head_width}",
            f"train.steps={steps}",
        ]
        return Rung(
            name=name, size=size, tokens=steps * a_step, overrides=overrides, seeds=[*map(int, seeds)]
        )
