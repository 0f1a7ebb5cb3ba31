"""Suggestions for tidying the vocabulary and the memories: generated from the data, decided in a review queue."""
