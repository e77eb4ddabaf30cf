"""Made-up users: laws that assumptions, or an earlier release, say of them, and logs drawn from these laws. Private.

Everything that is read here is released already, or assumed: what follows from it costs nothing.
"""
