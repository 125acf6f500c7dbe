# Interactive shells read this. It starts no process.
[ -z "${PS1-}" ] && return
shopt -s checkwinsize
if [ "$EUID" -eq 0 ]; then
  PS1='\h:\w# '
else
  PS1='\u@\h:\w\$ '
fi
