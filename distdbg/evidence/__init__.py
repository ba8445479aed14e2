"""Turn bytes and text into records. Opens no file, asks no clock: works on data alone."""
