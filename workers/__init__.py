"""Workers: the processes that run the tasks of a plan, one rank each."""
