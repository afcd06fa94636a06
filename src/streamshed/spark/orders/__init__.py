"""Plans as data: what a running query is told, and where it stands.

store        small files on any file system that Hadoop knows
history      which keep fraction holds for which batch times
order_file   a history, its file, and the row that the running plans read it from
drop_order   the drop of a shed stream: the row as a relation, and which rows it takes
identity     what tells one row of a source from another, read from as few columns as possible
"""
