# Interactive shells read this. It starts no process.
case $- in *i*) ;; *) return ;; esac
HISTCONTROL=ignoreboth
HISTSIZE=1000
HISTFILESIZE=2000
shopt -s histappend checkwinsize
alias ls='ls --color=auto' grep='grep --color=auto' ll='ls -l'
