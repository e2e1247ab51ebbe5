"""`make bench`: cases, the rounds that measure them, and the report of their figures."""
