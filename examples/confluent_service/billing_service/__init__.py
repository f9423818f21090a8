"""A service that bills orders: a topic in, a topic out."""
