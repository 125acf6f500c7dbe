//! What is run in the sandbox of a build besides the recipe's own: as root, by `/bin/sh`, since an
//! image may have no other shell.

/// `$1`: the name; `$2`: `sudo`, or nothing. A user that is there keeps everything it has.
const MAKE_USER: &str = r#"
name=$1
if ! grep -q "^$name:" /etc/passwd; then
  if command -v useradd >/dev/null 2>&1; then
    useradd -m -s "$(command -v bash || echo /bin/sh)" "$name"
  elif command -v adduser >/dev/null 2>&1; then
    adduser -D -s "$(command -v bash || echo /bin/sh)" "$name"
  else
    echo "$name:x:1000:1000::/home/$name:/bin/sh" >>/etc/passwd
    echo "$name:x:1000:" >>/etc/group
    mkdir -p "/home/$name"
    chown 1000:1000 "/home/$name"
  fi
fi
if [ "$2" = sudo ]; then
  grep -q '^sudo:' /etc/group || echo 'sudo:x:27:' >>/etc/group
  members=$(sed -n 's/^sudo:[^:]*:[^:]*://p' /etc/group)
  case ",$members," in
    *",$name,"*) ;;
    *) sed -i "s/^\(sudo:.*\)\$/\1${members:+,}$name/" /etc/group ;;
  esac
fi
"#;

/// What clients count on and an image may lack. `sudo` is the agent's: see ADR 9.
const PROVISION: &str = r#"
home=$(sed -n 's/^user:[^:]*:[^:]*:[^:]*:[^:]*:\([^:]*\):.*/\1/p' /etc/passwd)
mkdir -p "${home:-/home/user}" /usr/local /code
for file in /etc/skel/.[!.]*; do
  [ -e "$file" ] && [ ! -e "$home/${file##*/}" ] && cp "$file" "$home/"
done
chown -R user: "${home:-/home/user}"
chmod 777 /usr/local /code
[ -e /usr/bin/sudo ] && [ "$(readlink /usr/bin/sudo)" != /.sandboxo/agent ] && rm -f /usr/bin/sudo
[ -e /usr/bin/sudo ] || [ -L /usr/bin/sudo ] || ln -s /.sandboxo/agent /usr/bin/sudo
true
"#;

/// `$1`: the template; `$2`: the build.
const FINALIZE: &str = r#"
printf 'TEMPLATE_ID=%s\nBUILD_ID=%s\n' "$1" "$2" >/.e2b
"#;

/// `$1`: the path; `$2`: whose new folders are.
const MAKE_FOLDER: &str = r#"
path=$1
owner=$2
first=$path
while [ ! -e "${first%/*}" ] && [ -n "${first%/*}" ]; do first=${first%/*}; done
[ -d "$path" ] && exit 0
mkdir -p "$path" && chown -R "$owner:" "$first"
"#;

/// `$1`: the place; `$2`: `user` or `user:group`. Says on four lines what is there, the deepest
/// folder that is, and both ids.
const LOOK: &str = r#"
path=$1
if [ -d "$path" ]; then echo folder; elif [ -e "$path" ] || [ -L "$path" ]; then echo other; else echo nothing; fi
near=$path
while [ ! -d "$near" ] && [ -n "$near" ]; do near=${near%/*}; done
printf '%s\n' "${near:-/}"
owner=${2%%:*}
case $owner in
  *[!0-9]*)
    uid=$(sed -n "s/^$owner:[^:]*:\([0-9]*\):.*/\1/p" /etc/passwd)
    gid=$(sed -n "s/^$owner:[^:]*:[0-9]*:\([0-9]*\):.*/\1/p" /etc/passwd) ;;
  *) uid=$owner gid=$owner ;;
esac
case $2 in
  *:*)
    group=${2#*:}
    case $group in
      *[!0-9]*) gid=$(sed -n "s/^$group:[^:]*:\([0-9]*\):.*/\1/p" /etc/group) ;;
      *) gid=$group ;;
    esac ;;
esac
printf '%s\n%s\n' "$uid" "$gid"
"#;

/// `$1`: the archive. A folder that is there stays, and a link to one counts as one.
const UNPACK: &str = r#"
if tar --version 2>/dev/null | grep -q GNU; then
  tar -xpf "$1" -C / --same-owner --numeric-owner --keep-directory-symlink
else
  tar -xpf "$1" -C /
fi
status=$?
rm -f "$1"
exit $status
"#;

pub(super) struct Script {
    pub(super) text: String,
    pub(super) args: Vec<String>,
}

impl Script {
    fn of(text: &str, args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Self { text: text.to_owned(), args }
    }

    pub(super) fn provision() -> Self {
        Self::of(&format!("{MAKE_USER}{PROVISION}"), &["user", "sudo"])
    }

    pub(super) fn make_user(name: &str, sudo: bool) -> Self {
        Self::of(MAKE_USER, &[name, if sudo { "sudo" } else { "" }])
    }

    pub(super) fn finalize(template: &str, build: &str) -> Self {
        Self::of(FINALIZE, &[template, build])
    }

    pub(super) fn make_folder(path: &str, owner: &str) -> Self {
        Self::of(MAKE_FOLDER, &[path, owner])
    }

    pub(super) fn look(path: &str, owner: &str) -> Self {
        Self::of(LOOK, &[path, owner])
    }

    pub(super) fn unpack(archive: &str) -> Self {
        Self::of(UNPACK, &[archive])
    }
}
