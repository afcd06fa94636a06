"""The Spark runtime: plans carried out inside running streaming queries. From the entries down:

    handles      `ss.handle`: from a DataFrame, a query or a name to what sheds there
    network/     `ss.run`: run, prepare (checks), running_network (the handle), enforcer (which plan is in force),
                 query_layout (which outputs run where), sql and slots (boxes and drops), fused_query and
                 stateful_query (network_query in common), books and diary, sinks, load_aware_box, calibrate;
                 in real-time mode run_real_time, real_time_network (the handle), real_time_query, real_time_plan,
                 real_time_windows, arc_counts
    drop_in/     `ss.shed`: shed, shedder (the handle), drop_order (the drop itself), identity (what a row is),
                 connect_shed (over Spark Connect)
    load_aware/  `ss.load_aware`: load_aware, load_shedder (the handle), cost_orders (what the tasks are told),
                 cost_stage (what they do), mail (how they report), cost_control (what is learned of it)
    real_time/   `ss.shed(…, trigger="real-time")`: ladder_shed, ladder_shedder (the handle; aged_stream in common
                 with that of networks), age_ladder, road_map_ladder, ladder_rule and LadderRule.java (who passes),
                 learned_costs and LearnedCosts.java (what rows cost), executor_control (what is in force),
                 ladder_books, task_arrays, task_slots, refusals
    planned_handle   what handles have whose plans the one controller makes: drop-in and networks
    handle       what every handle has
    watch/       what the queries did: session_monitor, query_watch, progress, plan_counts, stage_times, clock_skew
    journal      what was shed when
    orders/      plans as data: store, history, order_file, enforcer; the time budget: batch_clock, budget_carrier
    arguments, session, worker, columns, native

Imports go down this list only (import-linter).
"""
