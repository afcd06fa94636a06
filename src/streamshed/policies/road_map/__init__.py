"""The Load Shedding Road Map: its table, and the two ways to fill it."""
