"""version1: the files of the program that came before, read once and imported."""
