#!/bin/sh
# LIBERO (or the embedded scene) with the policy behind a socket: the same keys, seeds and decoders as without it.
#   examples/libero_through_the_server.sh POLICY_FOLDER [SCENE] [OUT] [OPTIONS OF qhead eval...]
#   examples/libero_through_the_server.sh src/lerobot_policy_quantile/base embedded runs/far --camera-size 96 --tasks 1-4
set -eu
policy=${1:?usage: libero_through_the_server.sh POLICY_FOLDER [SCENE] [OUT] [OPTIONS OF qhead eval...]}
scene=${2:-libero_object}
out=${3:-runs/through-the-server}
shift "$(($# < 3 ? $# : 3))"
mkdir -p "$out"

qhead serve --policy "$policy" --port 0 >"$out/server.log" 2>&1 &
server=$!
trap 'kill "$server"; wait "$server" || true' EXIT
until url=$(grep -o 'ws://[^;]*' "$out/server.log"); do
    kill -0 "$server" || { cat "$out/server.log"; exit 1; }
    sleep 1
done

qhead eval --scene "$scene" --policy "far=$url" --decoder median --decoder "shared(l=0.1)" --indices 0-9 --out "$out" "$@"
