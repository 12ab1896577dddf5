#!/bin/sh
# Print the first interpreter on the search path that the lock supports (3.11 to 3.13), the tested 3.11 first.
# An interpreter counts only if it starts: version managers leave names behind that do not.
for name in python3.11 python3.12 python3.13 python3 python; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then
        echo "$name"
        exit 0
    fi
done
echo "No Python 3.11, 3.12 or 3.13 found. Install one, or name it: make PYTHON=/path/to/python3.11" >&2
exit 1
