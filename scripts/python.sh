# Sourced by the scripts that make an environment: `find_python` names a Python that Parley runs on, or ends with a sentence.
fits='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, '

find_python() {
    for last in 13 14; do # the built-in model has no ears on 3.14: any other goes first
        for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
            if "$name" -c "$fits$last))" 2>/dev/null; then
                echo "$name"
                return
            fi
        done
    done
    echo "Parley needs Python 3.11 to 3.14 with venv: install it (Debian and Ubuntu: apt install python3 python3-venv;" \
        "macOS: brew install python@3.13), or name one with PYTHON=/path/to/python3, and run make again." >&2
    exit 1
}
