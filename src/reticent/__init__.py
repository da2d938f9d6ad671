"""The part of the package that is built so far."""
