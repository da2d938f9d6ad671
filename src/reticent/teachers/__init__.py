"""Teachers: classifiers that learn from disjoint rows and vote. A labeller turns their votes into private labels."""

from reticent.teachers.linear import LogisticTeacher
from reticent.teachers.pate import PATEClassifier
from reticent.teachers.students import NoiseAware, VotingStudents
from reticent.teachers.teachers import Teachers

__all__ = ["LogisticTeacher", "NoiseAware", "PATEClassifier", "Teachers", "VotingStudents"]
