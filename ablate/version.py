"""The versions of this program and of what it computes, the name under which pip installs it, and another
project of the same name."""

__version__ = "0.2.0"
# Of what it computes, on which every result depends. Raise it when a loss, a measure or a text may come out
# otherwise than before: results of an earlier version are stale from then on. tests/test_golden.py says when.
# Rows made before there was a version have 0.
NUMERICS = 4
DISTRIBUTION = "ablate-heads"
NAMESAKE = "ablate"  # on the package index another project, whose package has the same name as this one


def conflict() -> str:
    """What is wrong, and the way out, where both projects are installed; else empty."""
    import importlib.metadata

    try:
        other = importlib.metadata.version(NAMESAKE)
    except importlib.metadata.PackageNotFoundError:
        return ""
    return (
        f"{NAMESAKE} {other}, another project, is installed as well, and has overwritten files of"
        f" {DISTRIBUTION}; pip uninstall {NAMESAKE}, then pip install --force-reinstall {DISTRIBUTION}"
    )
