"""Teachers: classifiers that learn from disjoint rows and vote. What they say is private only through a labeller."""

from reticent.teachers.linear import LogisticTeacher
from reticent.teachers.teachers import Teachers

__all__ = ["LogisticTeacher", "Teachers"]
