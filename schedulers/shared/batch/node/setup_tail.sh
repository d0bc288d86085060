torchx_code=$? torchx_at=$torchx_before
trap - ERR DEBUG
unset -f exit
[ "$torchx_code" = 0 ] || torchx_failed "$torchx_code" "$torchx_at"
exec "${torchx_program[@]}"
