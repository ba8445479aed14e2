"""The code that runs inside a rank. It needs the standard library, and torch only once the script has imported it."""
