"""Planning for processors whose fast memory is managed by hardware: caches.

All operands stay in main memory; a schedule orders loops, blocks them for the caches and for the
registers of a micro-kernel, and shares the outermost ones among cores. ``planner`` enumerates and
ranks schedules; ``cost`` prices what the caches fetch. The planners of planning/planners/ are for
memories that software manages.
"""
