"""Processes that read files from elsewhere: limited in memory and time, with nothing to steal.

What a malicious file could do to a parser ends with such a process. `calling` starts one and waits
for it; `__main__` is what runs in it.
"""
