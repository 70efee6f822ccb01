"""Messages of the library in the words of a TOML file.

The library advises in Python, `region=hn.Box(-1, 1)`. Whoever wrote a TOML file is told
`region = { box = [-1, 1] }`.
"""

from __future__ import annotations

import re

_TRANSLATIONS = [
    # Regions and processes.
    (
        r"hn\.Box, hn\.Point or hn\.Normal",
        "{ box = [low, high] }, { point = x } or { normal = { mean = m, std = s } }",
    ),
    (r"hn\.Box or hn\.Normal", "{ box = [low, high] } or { normal = { mean = m, std = s } }"),
    (r"hn\.Point\(spot\), or hn\.Box\(0\.8 \* spot, 1\.2 \* spot\)", "{ box = [80, 120] }"),
    (r"hn\.Box\(x - 1, x \+ 1\)", "{ box = [-1, 1] }"),
    (r"hn\.Box\(([^,()]+), ([^()]+)\)", r"{ box = [\1, \2] }"),
    (r"hn\.Point\(\[?([^\[\]()]*)\]?\)", r"{ point = \1 }"),
    (r"hn\.Point", "{ point = x }"),
    (r"\bBox\(([^,()]+), ([^()]+)\)", r"{ box = [\1, \2] }"),
    (r"hn\.GeometricBrownian\(\.\.\.\)", "[process.geometric_brownian]"),
    (r"hn\.OrnsteinUhlenbeck\(\.\.\.\)", "[process.ornstein_uhlenbeck]"),
    (
        r"hn\.OrnsteinUhlenbeck\(rate=(.+), mean=(.+), diffusion=(.+)\)",
        r"[process.ornstein_uhlenbeck] with rate = \1, mean = \2, diffusion = \3",
    ),
    # Matrices, functions and formulas.
    (r",? hn\.Factor\(S\) or hn\.LowRank\(diag, U\)", " or a list of rows"),
    (r"[Gg]ive the Laplacian in closed form: hn\.Function\(f, laplacian=g\)", "State it in Python"),
    (r"hn\.Function\(f, laplacian=g\)", "a Python file with hn.Function(f, laplacian=g)"),
    (r"a function: drift=", "a formula: drift="),
    (r"as a function, drift=", "as a formula, drift="),
    (r"drift=lambda t, x: rate \* \(mean - x\)", 'drift = "rate * (mean - x)"'),
    (r"For example: lambda [^:]*: (.*)\.$", r'For example: "\1".'),
    (r"\bjnp\.maximum\b", "max"),
    (r"\bjnp\.minimum\b", "min"),
    (r"\bjnp\.", ""),
    (r" of hn\.Problem\b", ""),
    # Certificates.
    (
        r"u\.certify_gradient\(t, x\) gives the true gradient, with an interval",
        "In Python u.certify_gradient(t, x) gives the true gradient, with an interval",
    ),
    (r"\bu\.certify\(t, x\)", "a [[certify]] table"),
    # Settings.
    (r"It is in bytes: memory=4 \* 2\*\*30 for 4 GiB", 'Write memory = "4GiB"'),
    (r"\bgot None\b", "got nothing"),
    (r"\b([a-z_]+)=\(([^()]*)\)", r"\1 = [\2]"),
    (r"\b([a-z_]+)='([^']*)'", r'\1 = "\2"'),
    (r'\b([a-z_]+)=("[^"]*"|-?\.?\d[\w.+-]*\w|-?\d)', r"\1 = \2"),
    (r"\b([a-z_]+)=(-[a-z]\w*)", r'\1 = "\2"'),
    (r"\b([a-z_]+)=True\b", r"\1 = true"),
    (r"\b([a-z_]+)=False\b", r"\1 = false"),
]


def in_toml_words(text: str) -> str:
    """A message with its Python expressions written as in a TOML file."""
    for pattern, replacement in _TRANSLATIONS:
        text = re.sub(pattern, replacement, text)
    return text
