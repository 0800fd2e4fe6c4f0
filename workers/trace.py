"""The measured timeline as a trace: the format is the plan's, see `tapestry.planner.format.events`."""

from ..planner.format.events import chrome_trace as chrome_trace
from ..planner.format.events import trace_json as trace_json
