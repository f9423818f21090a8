"""Kafka requests that Harrow sends by itself: over one connection, as an operator, and for the states of groups."""
