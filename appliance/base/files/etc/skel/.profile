# Login shells read this after /etc/profile. It starts no process.
case $- in *i*) [ -n "${BASH_VERSION-}" ] && [ -r ~/.bashrc ] && . ~/.bashrc ;; esac
case ":$PATH:" in
  *":$HOME/.local/bin:"*) ;;
  *) PATH=$HOME/.local/bin:$PATH ;;
esac
