"""SQL text to the calls of the API: select, project, join, aggregate, distinct."""
