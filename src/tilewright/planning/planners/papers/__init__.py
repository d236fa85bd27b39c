"""Schedules as the papers of swTVM and swATOP describe them."""
