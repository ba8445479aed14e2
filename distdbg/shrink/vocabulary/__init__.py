"""Cut a vocabulary with its tokenizer: which tokens stay, and the tokenizer's files and configs with their new ids.

Only JSON is read and written here: no torch, no tokenizers library.
"""
