unpack() (  # unpack FOLDER: writes the files at the end of this script, which is submitted by hand, to a folder
    LC_ALL=C first=$1
    umask 077
    mkdir -p "$first" || exit
    if [ ! -O "$first" ] || [ -L "$first" ]; then exit 73; fi  # owned by another user
    mkdir -p "$first/.node" || exit
    file=
    while IFS= read -r line; do
        case $line in
            '#|') echo >&3 ;;
            '#| '*) printf '%s\n' "${line:3}" >&3 ;;
            '#\ '*) printf '%b\n' "${line:3}" >&3 ;;  # with a carriage return, which a batch system may reject
            '#> '*)
                [ -z "$file" ] || mv "$file.$HOSTNAME-$$" "$file" || exit
                file=$first/${line:3}
                [ "${line:3}" = end ] || exec 3> "$file.$HOSTNAME-$$" || exit
                ;;
        esac
    done < "$0"
)
unpacked=
for folder in "$first" ${fallback:+"$fallback"}; do
    ! unpack "$folder" || unpacked=yes
done
[ -n "$unpacked" ] || exit 73
