"""Findings become a verdict, and that becomes text, JSON and one offline HTML page."""
