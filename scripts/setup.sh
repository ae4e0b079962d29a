#!/bin/sh
# Create the virtual environment $1 if it is not there, and install Parley into it: $2 is "base" or an extra's name.
# A stamp file left in it says that it is done. Knows no package index: that is pip's own configuration.
set -eu
venv=$1
extra=$2

cd "$(dirname "$0")/.."
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

size() {
    mb=$(sed -n "s/^# Downloads.*[ ,]$extra \([0-9]*\).*/\1/p" constraints.txt)
    [ -z "$mb" ] || echo ": about $mb MB to download, once"
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$venv"
fi

target=.
[ "$extra" = base ] || target=".[$extra]"
echo "Installing Parley into $venv$(size)."

# The constraints hold for the build environment too; newer pips read them there from a variable of their own.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$venv/bin/python" -m pip install --quiet --editable "$target" || {
    echo "The installation failed: see pip's message above. What it needs is a network (or a folder of wheels named in" \
        "PIP_FIND_LINKS) and some free disk; then run make again." >&2
    exit 1
}
touch "$venv/base.stamp" "$venv/$extra.stamp"
