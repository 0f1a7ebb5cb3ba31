"""What might be tidied, proposed to people: made from the data, decided in a queue, applied by the services alone."""
