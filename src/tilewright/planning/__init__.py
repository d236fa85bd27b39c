"""Planning: domains, layouts, schedules, the cost model, the planners: a schedule per kernel."""
