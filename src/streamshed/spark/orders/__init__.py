"""Plans as data: what a running query is told, and where it stands.

store           small files on any file system that Hadoop knows
history         which keep fraction holds for which batch times
order_file      a history, its file, and the row that the running plans read it from
enforcer        whose plan counts, and what happens if it cannot be stored
task_cells      what a task remembers from row to row, and what a plan reads when it is made
batch_clock     the deadline of a batch, asked of the clock at the drop
budget_carrier  the time budget of the plan in force, on its way to the batch's clock
"""
