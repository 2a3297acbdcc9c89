"""How far trained heads are from one head of the same weights, and how often they leave the values.

    python benchmarks/trained.py book FILE

writes a CSV of what `ablate verify --run` tells of each run of the study that reports: before training and
after, a row for each layer, with the run's settings.
"""

import sys

import pandas as pd

import ablate
from ablate.analysis.frames import at_own_value
from ablate.verify.results import of_run

SETTINGS = ["run_id", "seed", "steps", "heads", "out_proj", "scale", "tie_qk", "scores"]


def main(study: str, path: str) -> None:
    rows = at_own_value(ablate.load(study))
    told = rows.loc[rows["phase"].ne("develop"), SETTINGS].to_dict("records")
    found = [settings | layer for settings in told for layer in of_run(settings["run_id"])]
    pd.DataFrame(found).to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
