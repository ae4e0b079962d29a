#!/bin/sh
# Create the virtual environment $1 if it is not there, and install Parley into it: $2 is "base" or an extra's name.
# A stamp file left in it says that it is done. Knows no package index: that is pip's own configuration.
set -eu
venv=$1
extra=$2

cd "$(dirname "$0")/.."
. scripts/python.sh

size() {
    mb=$(sed -n "s/^# Downloads.*[ ,]$extra \([0-9]*\).*/\1/p" constraints.txt)
    [ -z "$mb" ] || echo ": about $mb MB to download, once"
}

# Of pip's output, print one short line for each package of a megabyte or more, and one for the last step.
progress() {
    while read -r line; do
        case $line in
        *Downloading*" MB)"*)
            file=${line#*Downloading }
            echo "  ${file%%-*} (${line##*\(}"
            ;;
        "Installing collected packages"*) echo "  unpacking" ;;
        esac
    done
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$venv"
fi

target=.
[ "$extra" = base ] || target=".[$extra]"
echo "Installing Parley into $venv$(size)."

rm -f "$venv/$extra.stamp"
# The constraints hold for the build environment too; newer pips read them there from a variable of their own.
{
    PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
        PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --progress-bar off --editable "$target" &&
        touch "$venv/base.stamp" "$venv/$extra.stamp"
} | progress
[ -e "$venv/$extra.stamp" ] || {
    echo "The installation failed: see pip's message above. What it needs is a network (or a folder of wheels named in" \
        "PIP_FIND_LINKS) and some free disk; then run make again." >&2
    exit 1
}
