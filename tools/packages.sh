# Sourced by the launcher: system packages. Groups and names are in tools/packages.txt.

# packages_of GROUP...: one line per package, alternatives joined by "|".
packages_of() {
  local other=aarch64 group
  [[ $(uname -m) == aarch64 ]] && other=x86-64
  for group in "$@"; do
    awk -v group="[$group]" '/^\[/ {on = $0 == group; next} on && NF && !/^#/ {gsub(/ /, ""); print}' \
      "$root/tools/packages.txt"
  done | sed "s/@other/$other/" | sort -u
}

# missing_packages GROUP...: the lines of packages_of of which no alternative is installed.
missing_packages() {
  local installed line name found
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package}\n' | sed -n 's/^installed://p' | tr '\n' ' ')"
  while read -r line; do
    found=
    for name in ${line//|/ }; do
      [[ $installed == *" $name "* ]] && found=yes
    done
    [[ $found ]] || echo "$line"
  done < <(packages_of "$@")
}

# agree SENTENCE: says what will be done and asks whether to go on. Nobody is asked after -y, nor where there is no
# terminal to answer from.
agree() {
  [[ ! $assume_yes && -t 0 && -t 2 ]] || return 0
  local answer
  say "$1"
  read -r -p "sluice: go on? [Y/n] " answer || answer=n
  case $answer in "" | [Yy] | [Yy][Ee][Ss]) ;; *) fail 69 "nothing was installed" ;; esac
}

# install_packages GROUP...: installs what is missing, with apt-get; does nothing where nothing is. On a system without
# apt-get the build is tried with what is there (see need_by_hand).
install_packages() {
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || return 0
  local wanted chosen=() line name
  mapfile -t wanted < <(missing_packages "$@")
  ((${#wanted[@]})) || return 0
  [[ ${SLUICE_INSTALL:-yes} != no ]] || fail 69 "SLUICE_INSTALL=no, and these packages are missing:" "${wanted[@]}"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail 69 "not root and no sudo; these packages are missing:" "${wanted[@]}"
    as_root=(sudo)
  fi
  agree "apt-get will install ${#wanted[@]} packages${as_root:+ with sudo}: ${wanted[*]%%|*}"
  say "installing ${#wanted[@]} packages: ${wanted[*]%%|*}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  run_quietly 69 "${apt[@]}" update
  for line in "${wanted[@]}"; do
    for name in ${line//|/ }; do
      if apt-cache show "$name" >/dev/null 2>&1; then
        chosen+=("$name")
        continue 2
      fi
    done
    fail 69 "this distribution has no package $line (sluice needs Debian 12 or later, or a system like it)"
  done
  run_quietly 69 "${apt[@]}" install --no-install-recommends -y "${chosen[@]}"
}

# try_packages GROUP...: installs what is missing where that is possible; what needs them has to do without elsewhere.
try_packages() {
  (install_packages "$@") || say "going on without $(packages_of "$@" | tr '\n' ' ')"
}

# need_by_hand GROUP...: what to install where there is no apt-get.
need_by_hand() {
  command -v apt-get >/dev/null && return 0
  say "this system has no apt-get; install what these Debian packages hold, then try again:"
  packages_of "$@" | sed 's/^/  /' >&2
  exit 69
}
