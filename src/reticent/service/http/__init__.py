"""HTTP: the routes, the formats that they read and write, access by key, batching, and the server."""
