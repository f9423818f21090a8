"""What works while `harrow chaos` breaks things: Harrow's workloads, those of extensions, and a program of the user."""
