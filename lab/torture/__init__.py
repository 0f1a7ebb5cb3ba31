"""Attacks on a whole site: processes that are killed while everybody writes, and strangers who look for leaks."""
