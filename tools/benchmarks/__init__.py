"""Kopitiam against the engines that people already have, on the same files, in turns."""
