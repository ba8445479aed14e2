"""Find the smallest command that still shows a failure: one dimension after the other is reduced in real runs.

It rests on two assumptions, which the docs state and the end of a search tests by two more runs: the failure shows
each time, and where it shows with a value it shows with each larger one (the others as they are).
"""
