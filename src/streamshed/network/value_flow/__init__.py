"""How values flow through a network: where a field comes from, and what becomes of each range of it."""
