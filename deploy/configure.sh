#!/bin/sh
# Write deploy/local: the configuration of a deployment with secrets of its own, for compose.yaml.
#   sudo sh deploy/configure.sh voice.example.org 203.0.113.7 [FOLDER]
# The address is the one at which this machine is reached from outside, of IPv4: browsers ask a TURN server for relays of
# no other, and these pass nothing on to IPv6. FOLDER stands for deploy/local. Files that are there stay as they are.
set -eu
if [ $# -lt 2 ]; then
    echo "Name this server and its outside address: sudo sh deploy/configure.sh voice.example.org 203.0.113.7" >&2
    exit 2
fi
name=$1
address=$2
case $address in
*[!0-9.]*)
    echo "$address is no IPv4 address, and a browser's relay reaches no other: name one that leads to this machine." >&2
    exit 2
    ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
folder=${3:-$here/local}
umask 077

random() { head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

# The containers' users have these numbers: Parley's is the Dockerfile's, coturn's image has nobody's.
give() {
    chown "$1:$1" "$2" 2>/dev/null || {
        echo "$2 has to belong to user $1 of its container: run this script as root." >&2
        exit 1
    }
    chmod 0400 "$2"
}

if [ -e "$folder/parley.yaml" ]; then
    echo "$folder is there already: remove it to begin anew." >&2
    exit 1
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
chmod 0755 "$folder"
secret=$(random)
for file in turnserver.conf parley.yaml; do
    sed "s/@NAME@/$name/g; s/@ADDRESS@/$address/g; s/@SECRET@/$secret/g" "$here/templates/$file" >"$folder/$file"
done
echo "first: $(random)" >"$folder/keys"
echo "PARLEY_NAME=$name" >"$folder/.env"
echo "PARLEY_LOCAL='$folder'" >>"$folder/.env"
echo "GRAFANA_PASSWORD=$(random)" >>"$folder/.env"
give 65534 "$folder/turnserver.conf"
give 10001 "$folder/parley.yaml"
give 10001 "$folder/keys"
echo "Written to $folder. The API key stands in its file keys, Grafana's password in .env. Then:"
echo "  sudo docker compose --env-file '$folder/.env' --file '$here/compose.yaml' up --detach --build"
