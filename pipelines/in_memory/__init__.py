"""Commands on frames, in this process and without Beam: what calls in Python and audits stand on."""
