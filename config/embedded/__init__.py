"""The embedded Postgres: a server under HOME (server.py), and the database backend that starts it (base.py)."""
