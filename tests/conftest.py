"""What every test stands on. The database is set up in tests/settings.py, the sockets in pyproject.toml."""
