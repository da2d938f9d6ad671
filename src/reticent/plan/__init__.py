"""How many rows a promise takes, and what a number of rows can promise: computed before anything private is touched."""

from reticent.plan.plan import Plan

__all__ = ["Plan"]
