"""The window structures, one a file, named as in their papers."""
