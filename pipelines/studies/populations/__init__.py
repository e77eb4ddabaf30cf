"""Made-up users: models that assumptions, or an earlier release, say of them, and logs drawn from these models. Private.

Everything that is read here is released already, or assumed: what follows from it costs nothing.
"""
