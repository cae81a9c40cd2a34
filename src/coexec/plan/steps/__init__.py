"""Plans for steps: what a program does again and again is planned as a whole.

Before: plan/planner.py's neighbours, predict/, machine/.  After: schedule/plan.py.
"""
