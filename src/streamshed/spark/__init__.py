"""The Spark runtime: plans carried out inside running streaming queries.

    shed         one stream: its drop, and its handle (shedder)
    load_aware   a Python function that drops rows by what they cost: load_shedder (the handle), cost_orders (what
                 the tasks are told), cost_stage (what they do), cost_control (what is learned of it)
    runtime      a network: prepare (checks), running_network (the handle), network_enforcer (which plan is in
                 force), layout (which outputs run where), sql and slots (boxes and drops), fused_query and
                 stateful_query (network_query in common), network_books and network_diary, sinks, load_aware_box
    calibrate    what the boxes of a network cost

Below all of them: orders (plans as data), handle (what every handle has), monitor and progress (what a batch did),
counts and statistics (how many rows), journal (what was shed when), arguments, session, worker.
"""
