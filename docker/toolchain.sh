#!/bin/sh
# What an image needs to compile, not only to import.  Runs as root while the image is built.
#
#     toolchain.sh [PACKAGE...]      further Debian or Ubuntu packages
#
# Inductor calls g++ (gcc builds Triton's launchers), includes Python.h, links OpenMP and hashes its
# precompiled header with the openssl program.  The base may be any Debian or Ubuntu: python.org's
# images bring their own Python with its headers, others get the distribution's.
set -eu
here=$(dirname "$0")
export DEBIAN_FRONTEND=noninteractive

# A site's own certificates, before the first https mirror is asked.
bundle=/etc/ssl/certs/ca-certificates.crt
for certificate in "$here"/*.crt; do
    [ -f "$certificate" ] || continue
    mkdir -p /usr/local/share/ca-certificates "${bundle%/*}"
    cp "$certificate" /usr/local/share/ca-certificates/
    cat "$certificate" >>"$bundle"
done

if [ -n "${APT_MIRROR:-}" ]; then
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        [ -f "$list" ] || continue
        sed -i -E "s#https?://(deb\.debian\.org|archive\.ubuntu\.com|security\.ubuntu\.com)#${APT_MIRROR%/}#" "$list"
    done
fi

set -- ca-certificates gcc g++ libc6-dev libgomp1 openssl "$@"
python3 -c 'import ensurepip, venv' 2>/dev/null || set -- "$@" python3 python3-venv
has_headers='import os, sys, sysconfig; sys.exit(not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))'
python3 -c "$has_headers" 2>/dev/null || set -- "$@" python3-dev

apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/log/apt /var/log/dpkg.log
update-ca-certificates >/dev/null

# Whoever starts the container chooses the user; this one is for those who do not.
useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin atlas
