"""How dates are written by Django's own pages, the admin."""
