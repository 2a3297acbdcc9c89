"""What ablate no longer has: the names that its docs once had, and what to type instead. One line a name."""

# As typed: `train.linear` (a key), `study=ladder` (a choice of a group), `hydra/launcher=slurm`,
# `ablate claims` (a command), `runs --since` (an option of a command). The text
# stands after "NAME is gone; ".
GONE: dict[str, str] = {
    # names
    "study=arms": "ablate run -m fusion=concat,sum match=none,params,flops 'seed=range(8)' trains its arms",
    "study=rank": "study=why has projections of low rank among its arms",
    "study=scores": "ablate run -m scores=softmax,talking,uniform 'seed=range(8)' compares rules on scores",
    "study=weights": "ablate run -m fusion=concat,weighted_sum,gated 'seed=range(8)' compares them",
    "study=ladder": "type study=sizes, which has the size of the model as a factor",
    "study.kind=ladder": "write kind: tuned with `model` as a factor, as configs/study/sizes.yaml does",
    "model=rung/r1": "type model=tiny, or model=rung/r2, rung/r4 or rung/r6",
    "model=rung/r3": "type model=rung/r2, rung/r4 or rung/r6, or set model.d_model and model.layers",
    "model=rung/r5": "type model=rung/r2, rung/r4 or rung/r6, or set model.d_model and model.layers",
    "model=rung/r7": "type model=rung/r2, rung/r4 or rung/r6, or set model.d_model and model.layers",
    "model=rung/r8": "type model=rung/r2, rung/r4 or rung/r6, or set model.d_model and model.layers",
    "probe --prune": "loss_added says what is lost without each head",
    "probe --only kept_mlp": "take kept",
    "probe --only bits": "take kept",
    "probe --only dimensions": "take kept",
    "probe --only angle": "take head_id_accuracy",
    "probe --only cka": "take head_id_accuracy",
    "probe --only entropy_but_first": "take entropy",
    "probe --only distance_but_first": "take distance",
    "probe --only first": "take distance",
    "probe --only pattern_rank": "take jsd",
    "probe --only on_subject": "take entropy, distance or jsd",
    "probe --only sensitivity": "take loss_added",
    "probe --only pruned": "take loss_added",
    "probe --only aligned": "take entropy, distance or jsd",
    "probe --only alignment_errors": "take entropy, distance or jsd",
    "corpus=hub": "pipe its text in by a line of pandas, as docs/corpora.md shows",
    "corpus.column": "pipe the column in by a line of pandas, as docs/corpora.md shows",
    "corpus.revision": "pipe the text in by a line of pandas, as docs/corpora.md shows",
    "new --builtin": "copy the files of a method that is there: docs/architecture.md lists them",
    "compare --marginal": "intervals hold jointly; --where fusion=concat,sum leaves one comparison",
    "verify --run": "to ask whether one head does what many do, ablate run -m heads=1,4 'seed=range(6)'",
    "ablate claims": "commit a study's YAML before its runs: its study.json has the SHA-256 of that file",
    "corpus=gettext": "give pairs of texts of your own, as corpus=pairs corpus.path=A corpus.target=B",
    "corpus=numbers": "take corpus=reverse, or corpus=pairs corpus.path=A corpus.target=B",
    "corpus.direction": "name the sources in corpus.path and the targets in corpus.target",
    "corpus.long": "take a model.context as long as the longest pair, or leave longer pairs out of the file",
    "model=prefix": "take model=pair, or a task by model=tiny, which reads it as one row",
    "train.translate": "columns val_exact and test_exact score answers; ablate sample RUN shows them",
    "duel --budget": "give the number of paired seeds, as --seeds 8; --dry-run says how long they take",
    "study.report_at": "each arm of a tuned study reports at its own value",
    "probe --text": "in Python, ablate.probes.patterns.patterns_of shows where heads look",
    "hydra/launcher=slurm": "type sbatch --array=0-7 --wrap 'ablate run …'; or hydra/launcher=submitit_slurm",
    "hydra/launcher=ray_cluster": "take hydra/launcher=ray, or type the command on each machine",
    "hydra.launcher.jobs": "type sbatch --array=0-7 --wrap 'ablate run …', whose tasks share the runs",
    "hydra.launcher.wait": "type sbatch --wrap 'ablate run …', which returns at once",
    "hydra.launcher.address": "take hydra/launcher=ray hydra.launcher.ray.init.address=HOST:PORT",
    "plan --alpha": "each comparison is tested at 0.05 over their number, as compare does",
    "plan --budget": "its table has the minutes of each number of seeds; a larger --difference takes fewer",
    "plan --wide": "its table has six narrow columns",
    "verify --runs": "it reads no runs",
    "verify --wide": "--format json prints every column",
    "corpus list --wide": "--format md prints every column",
    "sample --top-k": "in Python, ablate.load_model(RUN).generate(top_k=5)",
    "export --plugin": "runs of your own methods go to trackers without it; none is a GPT-2 or a Llama",
    "--runs": "type it behind the command, as ablate runs --runs DIR",
}

# Columns of results.csv that keys had which are gone, each with the former default, as its cells hold it.
# A row with another value is of a variant that can no longer be trained.
FORMER_DEFAULTS: dict[str, str] = {
    # columns
    "translate": "false",
    "long": "",
}


def line_on(name: str) -> str:
    """The line on a name that is gone, for what refuses the name as unknown; empty for any other name."""
    return f"{name} is gone; {GONE[name]}" if name in GONE else ""
