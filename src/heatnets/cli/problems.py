"""`heatnets problems | new`: the list of named problems, and templates of problem files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from heatnets._core.atomic_files import check_writable, write
from heatnets._core.errors import FileError, InputError
from heatnets.cli import terminal


def problems(
    kind: Annotated[
        str | None,
        typer.Option(help="heat, linear, variable, semilinear or finance.", show_default="all"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for machines.")
    ] = False,
) -> None:
    """List the named problems: formula, exact solution if it is known, parameters."""
    from heatnets import problems as library

    entries = {
        name: {"is": library.words_of(name), "parameters": library.parameters_of(name)}
        for name in library.names(kind)
    }
    if as_json:
        print(json.dumps(entries))
        return
    console = terminal.console()
    for name, entry in entries.items():
        console.print(f"{name}  ({', '.join(entry['parameters'])})", style="bold")
        console.print(f"    {entry['is']}", soft_wrap=not console.is_terminal)


def new(
    name: Annotated[
        str, typer.Argument(help="Of the file: NAME.toml, or NAME.py.", show_default=False)
    ],
) -> None:
    """Write a commented problem file as a template: TOML, or Python if the name ends with .py."""
    path = Path(name if name.endswith((".toml", ".py")) else f"{name}.toml")
    if not path.stem or path.stem.startswith("-"):
        raise InputError(f"{name!r} cannot name a file.")
    check_writable(path)
    if path.exists():
        raise FileError(f"{path} is there already: choose another name. Nothing was written.")
    write(path, _PYTHON if path.suffix == ".py" else _TOML)
    terminal.console().print(f"{path}: edit it, then `heatnets solve {path}`")


# The backslashes at line ends join two lines of the source; they are not part of the template.
_TOML = """# u_t = D Δu + b·∇u + c u + F(t, x, u, ∇u) on all of R^d, u(0, x) = u0(x), 0 <= t <= T
# Solve it:  heatnets solve THIS_FILE

dim = 10
horizon = 0.5                                   # T
initial = "exp(-norm2(x) / d) * mean(cos(a*x))" # u0(x); or terminal = "...", u at t = T, \
then u_t + ... + F = 0
source = "t * exp(-norm2(x) / (2*d))"           # F; may use u and du (its gradient); \
leave it out for F = 0

diffusion = 1.0                                 # D, with no hidden one half; \
a list for a diagonal, or a formula of t and x
# form = "divergence"                           # div(A ∇u) or "trace": \
must be said where diffusion is a formula of x
# drift = 0.0                                   # b: a number, a list, \
or a formula that gives a vector, "-x"
# reaction = -0.1                               # c: a number, or a formula
# exact = "..."                                 # the solution u(t, x), where it is known: \
only ever used to measure

# In place of diffusion and drift, for prices: [process.geometric_brownian] with volatility, \
growth, correlation below it,
# terminal = "max(mean(x) - 100, 0)", reaction = -0.03, region = { point = 100 }.

region = { box = [-1, 1] }                      # where the answer is wanted; \
{ point = 0 } or { normal = { mean = 0, std = 1 } }

[parameters]                                    # names for the formulas: \
numbers, lists, or formulas
a = 2.0

[solve]
seconds = 20                                    # the budget; tol = 1e-4 asks for a relative error

[[certify]]                                     # u with a 95 % interval; \
as many of these as you like
t = 0.5
x = 0.3                                         # one number for all coordinates, or a list

# In formulas: t, x (a vector; x[0] is its first coordinate), d, T, i = (1, ..., d), pi, \
the parameters, + - * / ^ < >,
# sum mean prod norm norm2 dot min max, sin cos tan arctan exp log sqrt abs tanh sinh cosh \
log1p expm1 erf sigmoid softplus,
# where(condition, a, b), and roll(x), which is (x_d, x_1, ..., x_{d-1}).
"""

_PYTHON = '''"""A problem for `heatnets solve`: this file is run, and must define `problem`."""

import jax.numpy as jnp
import heatnets as hn

# u_t = D Δu + b·∇u + c u + F(t, x, u, ∇u) on all of R^d, u(0, x) = u0(x), 0 <= t <= T
problem = hn.Problem(
    dim=10,
    horizon=0.5,
    initial=lambda x: jnp.exp(-x @ x / x.size) * jnp.mean(jnp.cos(2.0 * x)),
    source=lambda t, x: t * jnp.exp(-x @ x / (2 * x.size)),  # or (t, x, u), (t, x, u, du); \
may be left out
    diffusion=1.0,
    region=hn.Box(-1.0, 1.0),
)
options = {"seconds": 20}  # keywords of hn.solve
points = [(0.5, 0.3)]  # (t, x): u there with a 95 % interval; \
one number stands for all coordinates
'''
