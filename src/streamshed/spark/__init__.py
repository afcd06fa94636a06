"""The Spark runtime: plans carried out inside running streaming queries.

    shed         one stream: its drop, and its handle
    load_aware   a Python function that drops rows by what they cost: load_shedder (the handle), cost_orders (what
                 the tasks are told), cost_stage (what they do), cost_control (what is learned of it)
    runtime      a network: prepare (checks), layout (which outputs run where), sql and slots (boxes and drops),
                 fused_query and stateful_query (network_query in common), network_books, sinks, load_aware_box
    calibrate    what the boxes of a network cost

Below all of them: control and network_control (plans as data), monitor and progress (what a batch did), counts
and statistics (how many rows), arguments, session, worker.
"""
