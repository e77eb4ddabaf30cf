"""The paper's choices of a bound that "auto" never takes: its baselines, and Algorithm 4 by its own measure."""
