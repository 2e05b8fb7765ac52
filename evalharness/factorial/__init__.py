"""The factorial: plan, launches, cells, and going on where a run was left."""
