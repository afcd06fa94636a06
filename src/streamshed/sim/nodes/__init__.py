"""Several nodes in virtual time, as DISSP has them: subqueries, batches that carry SIC, a load-shedder on each
node."""
