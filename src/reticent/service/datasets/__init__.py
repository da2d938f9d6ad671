"""Data sets and what was spent on them: one budget for all predictors that learn from the same rows."""
