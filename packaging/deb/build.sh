#!/bin/sh
# Builds a .deb from a finished binary:
#
#   cargo build --release -p riverlog-server
#   packaging/deb/build.sh target/release/riverlog [FOLDER FOR THE .deb]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
binary=${1:?usage: build.sh BINARY [FOLDER]}
out=${2:-.}
version=$("$binary" version -o name)
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 0755 "$root"

install -D -m 0755 "$binary" "$root/usr/bin/riverlog"
strip "$root/usr/bin/riverlog"
install -D -m 0644 "$here/riverlog.service" "$root/usr/lib/systemd/system/riverlog.service"
install -D -m 0644 "$here/sysusers.conf" "$root/usr/lib/sysusers.d/riverlog.conf"
install -D -m 0644 "$here/server.properties" "$root/etc/riverlog/server.properties"
install -D -m 0644 "$here/../../LICENSE" "$root/usr/share/doc/riverlog/copyright"
mkdir -p "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" \
    "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d" "$root/DEBIAN"
"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
"$binary" completions bash > "$root/usr/share/bash-completion/completions/riverlog"
"$binary" completions zsh > "$root/usr/share/zsh/vendor-completions/_riverlog"
"$binary" completions fish > "$root/usr/share/fish/vendor_completions.d/riverlog.fish"

echo /etc/riverlog/server.properties > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" <<EOF
Package: riverlog
Version: $version
Architecture: $arch
Section: net
Priority: optional
Maintainer: Riverlog <riverlog@users.noreply.github.com>
Depends: libc6
Installed-Size: $(du -sk "$root" | cut -f1)
Homepage: https://github.com/riverlog/riverlog
Description: Kafka-compatible event log
 A durable, ordered log of records that clients of Apache Kafka use as it is: one program without a JVM, for one
 machine or a test.
EOF
cat > "$root/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v systemd-sysusers >/dev/null; then
    systemd-sysusers riverlog.conf
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl enable riverlog.service
        systemctl restart riverlog.service
    fi
fi
EOF
cat > "$root/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now riverlog.service
fi
EOF
chmod 0755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
dpkg-deb --root-owner-group --build "$root" "$out/riverlog_${version}_$arch.deb"
