"""What ablate no longer has: the names that its docs once had, and what to type instead. One line a name."""

# As typed: `train.linear` (a key), `study=ladder` (a choice of a group), `hydra/launcher=slurm`,
# `ablate claims` (a command), `runs --since` (an option of a command). The text
# stands after "NAME is gone; ".
GONE: dict[str, str] = {
    # names
    "ablate claims": "commit a study's YAML before its runs: its study.json has the SHA-256 of that file",
}

# Columns of results.csv that keys had which are gone, each with the former default, as its cells hold it.
# A row with another value is of a variant that can no longer be trained.
FORMER_DEFAULTS: dict[str, str] = {
    # columns
}


def line_on(name: str) -> str:
    """The line on a name that is gone, for what refuses the name as unknown; empty for any other name."""
    return f"{name} is gone; {GONE[name]}" if name in GONE else ""
