"""Where the time of a decode step goes: a profiler's trace, summed by kernel family.

chrome      a torch-profiler chrome trace (CUDA or CPU) to activities and annotated steps
families    source name -> family, by an explicit list; what is in no family is `unknown`
attribution sums by family and by name; envelope, busy time, overlap, gaps
purity      is it decode at C and nothing else: refused where a step had prefill in it
document    trace.json (formats/trace.schema.json) and its Markdown table
gate        when C streams have been in pure decode for long enough
asked       what the streams ask for
streams     the C streams, and the profile asked for in the middle of them
session     the arm's server, started or used; the trace's files
command     what `evalharness trace` does, from its arguments to its files

Everything above `asked` is offline: no server, no client.
"""
