"""What the program decides for the user, as values that can be printed and checked."""
