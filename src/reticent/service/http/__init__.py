"""HTTP: the routes, the formats that they read and write, access by key, batching, and the server."""

from reticent.extras import require

require("service", "serve predictions over HTTP")  # before a module of this package imports what may be missing
