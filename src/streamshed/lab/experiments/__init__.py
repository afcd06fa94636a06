"""Experiments and benchmarks: each rebuilds a figure of a paper, or measures this system."""
