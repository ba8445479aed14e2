"""Build the documents of verdicts and analyses, and render them as text, JSON and HTML."""
