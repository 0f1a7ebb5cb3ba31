"""The embedded Postgres: a server of our own under HOME (server.py), and the backend that starts it (base.py)."""
