"""Bytes and text become records. Opens no file, asks no clock: works on data alone."""
