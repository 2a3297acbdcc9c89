"""Odd command lines and odd files, drawn from a seed."""
