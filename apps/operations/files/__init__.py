"""Files of operations: artifacts, exports, archives, and what a confined process does with them."""
