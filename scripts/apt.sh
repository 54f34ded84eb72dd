# Functions for scripts that install Debian packages: source this file.

# as_root COMMAND...: runs a command as root, by sudo if need be.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "$(basename "$0" .sh): neither root nor sudo; run as root: $*" >&2
		exit 1
	fi
}

# apt_install PACKAGES...: installs packages of the lists that apt-get has.
apt_install() {
	echo "$(basename "$0" .sh): apt-get install $*" >&2
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}
