"""Exact integer noise from the operating system's entropy. Seeded noise is for tests, and marks its results."""

from reticent.noise.samplers import Noise, Seeded, system

discrete_gaussian = system.discrete_gaussian
discrete_laplace = system.discrete_laplace
bernoulli_exp = system.bernoulli_exp
uniform = system.uniform
permutation = system.permutation
subset = system.subset
choose = system.choose

__all__ = [
    "Noise",
    "Seeded",
    "bernoulli_exp",
    "choose",
    "discrete_gaussian",
    "discrete_laplace",
    "permutation",
    "subset",
    "system",
    "uniform",
]
