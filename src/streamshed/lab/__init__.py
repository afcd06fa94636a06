"""The workshop: benchmarks, experiments, the demo and what they share. Needs `pip install streamshed[lab]`."""
