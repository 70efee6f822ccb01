"""What the documents claim is run: the README's example with its output, the examples in docstrings."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_first_shell_block_holds_two_commands():
    commands = [line for line in blocks("sh")[0].splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2
    assert commands[0].endswith("heatnets demo")
    assert commands[1].endswith("python -m pytest")


def test_the_readme_example_prints_what_it_says():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(blocks("python")[0], {})
    printed, promised = out.getvalue().splitlines(), blocks("text")[0].splitlines()
    number = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")
    assert [number.sub("#", line) for line in printed] == [number.sub("#", line) for line in promised]
    estimates = [
        [float(number.findall(line)[-1]) for line in lines if line.startswith(("estimated", "half-width"))]
        for lines in (printed, promised)
    ]
    for here, there in zip(*estimates, strict=True):
        assert 1e-3 < here / there < 1e3  # how far a budget of seconds goes depends on the machine
    rest = ([line for line in lines if not line.startswith(("estimated", "half-width"))] for lines in (printed, promised))
    values, wanted = ([float(v) for v in number.findall("\n".join(lines))] for lines in rest)
    np.testing.assert_allclose(values, wanted, rtol=1e-4)  # the digits that are printed


@pytest.mark.filterwarnings("ignore::heatnets.HeatnetsWarning")
@pytest.mark.parametrize("name", ["linear.md", "semilinear.md"])
def test_the_examples_of_a_page_print_what_they_say(name):
    page, out = (ROOT / "docs" / name).read_text(), io.StringIO()
    (code,), (promised,) = (
        re.findall(rf"^```{kind}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL) for kind in ("python", "text")
    )
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == promised


def test_tables_are_those_of_the_results():
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    refresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(refresh)
    for page in refresh.PAGES:
        assert "<!-- end -->" in page.read_text()
        assert refresh.filled(page.read_text()) == page.read_text(), (
            f"run python docs/refresh.py: {page.name} differs from docs/results"
        )


def test_links_lead_somewhere():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("module", ["function", "problem", "solving", "montecarlo", "problems"])
def test_docstring_examples(module):
    result = doctest.testmod(importlib.import_module(f"heatnets.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
