"""Networks as text: YAML, DISSP's XML, and drawings of them."""
