"""What a host of the repository reads holds together: workflows, forms, hooks, README and pyproject."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from benchmarks import picture

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCHEMAS = {
    "github-workflows": sorted(GITHUB.glob("workflows/*.yml")),
    "github-issue-forms": sorted(
        set(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) - {GITHUB / "ISSUE_TEMPLATE/config.yml"}
    ),
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE/config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
}
WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in SCHEMAS["github-workflows"]
}
JOBS = {(name, job): spec for name, workflow in WORKFLOWS.items() for job, spec in workflow["jobs"].items()}
STEPS = [step for job in JOBS.values() for step in job.get("steps", [])]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_github_are_of_its_schemas(schema):
    main = pytest.importorskip("check_jsonschema", reason="needs the extra dev").main
    runner = pytest.importorskip("click.testing").CliRunner()
    files = [str(path) for path in SCHEMAS[schema]]
    done = runner.invoke(main, ["--builtin-schema", f"vendor.{schema}", *files])
    assert files and done.exit_code == 0, done.output


def test_workflows_classifiers_and_readme_name_the_same_pythons():
    prefix = "Programming Language :: Python :: 3."
    minors = [int(name.removeprefix(prefix)) for name in PROJECT["classifiers"] if name.startswith(prefix)]
    first, last = f"3.{min(minors)}", f"3.{max(minors)}"
    assert minors == list(range(min(minors), max(minors) + 1))
    assert PROJECT["requires-python"].startswith(f">={first}")
    assert JOBS["tests", "quick"]["strategy"]["matrix"]["python"] == [first, last]
    single = [step["with"]["python-version"] for step in STEPS if "setup-python" in step.get("uses", "")]
    assert set(single) == {first, "${{ matrix.python }}"}
    assert f"Python {first} to {last}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package, last", [("hydra-core", "1.3.7"), ("ray", "2.55.1")])
def test_the_lowest_versions_have_no_hole_that_is_known(package, last):
    """last: the last version with one."""
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["ray"]]
    (bounds,) = (Requirement(one).specifier for one in wanted if Requirement(one).name == package)
    assert last not in bounds


def test_what_workflows_run_is_here():
    commands = [line for step in STEPS for line in step.get("run", "").splitlines()]
    paths = set(re.findall(r"(?:scripts|\.ci)/[\w./]+", "\n".join(commands)))
    assert {"scripts/package", "scripts/lint_workflows", "scripts/build_site.py", ".ci/run"} <= paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    programs = [path for path in paths if not Path(path).suffix]
    assert [path for path in programs if not os.access(ROOT / path, os.X_OK)] == []
    extras = set(re.findall(r'-e "\.\[(\w+)\]"', "\n".join(commands)))
    assert extras and extras <= set(PROJECT["optional-dependencies"])


def test_workflows_may_do_no_more_than_they_need():
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        assert "concurrency" in workflow
    grants = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert grants == {
        ("docs", "publish"): {"pages": "write", "id-token": "write"},
        ("release", "publish"): {"id-token": "write"},
    }
    for step in STEPS:
        if action := step.get("uses"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)
            assert "checkout" not in action or step["with"]["persist-credentials"] is False


def test_readme_says_the_numbers_of_its_picture():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    costs = picture.differences().set_index("name")["diff"]
    names = ("Q0 sum − concatenation, equal size", "Q3 one head − four, equal size")
    a_sum, one = (costs[name] for name in names)
    assert f"a sum of the heads costs {a_sum:.3f} nats, one head {one:.3f}." in page
    assert f"the sum loses {a_sum:.3f} nats." in page


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_pages_outside_docs_hold(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []
