"""Where a service keeps its answer log: the protocol of a store, the SQLite store, and a conformance test."""
