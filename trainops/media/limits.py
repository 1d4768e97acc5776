"""How large what is logged may be. Limits of an operation are thresholds of the installation."""

MIB = 1024**2
MAX_NAME = 64  # characters
MAX_NUMBERS = 1000  # names of numbers in one step
MAX_CAPTION = 200
MAX_ITEM_BYTES = 2 * MIB  # encoded; less than a request of a worker over HTTP may have, in base64
MAX_LOGGED_BYTES = 8 * MIB  # of all items of one call
MAX_ITEMS = 64  # images or clips in one call
MAX_SIDE = 4096  # pixels
MAX_BINS = 512
MAX_CLASSES = 100
MAX_LABEL = 64
MAX_COLUMNS = 50
MAX_ROWS = 1000
MAX_CELL = 1000  # characters
MIN_RATE, MAX_RATE = 1000, 192_000  # samples per second
