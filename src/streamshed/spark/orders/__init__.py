"""Plans as data: what a running query is told, and where it stands.

store           small files on any file system that Hadoop knows
history         which keep fraction holds for which batch times
order_file      a history, its file, and the row that the running plans read it from
enforcer        whose plan counts, and what happens if it cannot be stored
planned_data    what a batch is told when it is planned
batch_clock     the deadline of a batch, asked of the clock at the drop
budget_carrier  the time budget of the plan in force, on its way to the batch's clock
"""
