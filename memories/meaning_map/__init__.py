"""The map of meaning: a place on a plane for each memory, near those that mean similar things."""
