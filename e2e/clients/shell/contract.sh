# What the shell clients of the matrix share: the arguments, the names, and one JSON line for each step. ../README.md says what each
# step does. A client defines a function do_STEP for each step that it can do and calls run_steps; a function prints what there is to
# say and fails, or ends with refuse, absent or its success. Sourced, not run.
set -uo pipefail

partitions=3 records=300 more=30 retention=7654321
# For everything that a step waits for, in seconds.
limit=45

while [ $# -gt 1 ]; do
  case $1 in
    --bootstrap) bootstrap=$2 ;;
    --prefix) prefix=$2 ;;
    --steps) steps=$2 ;;
  esac
  shift 2
done
data=$prefix-data admin=$prefix-admin gone=$prefix-gone group=$prefix-group

refuse() {
  echo "$1"
  exit 42
}
absent() {
  echo "$1"
  exit 43
}
fail() {
  echo "$1"
  exit 1
}

# lines FIRST COUNT: records as `key:value`.
lines() {
  local number
  for ((number = $1; number < $1 + $2; number++)); do echo "k$((number % 30)):v$number"; done
}
# values FIRST COUNT: their values, sorted.
values() { lines "$1" "$2" | cut -d: -f2 | sort; }

# until_true WHAT COMMAND...: calls it until it succeeds.
until_true() {
  local what=$1 end=$((SECONDS + limit))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "waited $limit s for $what"
    sleep 0.2
  done
}

tell() { # STEP OK DETAIL MORE
  local detail=${3//\\/\\\\}
  detail=${detail//\"/\\\"}
  detail=$(printf %s "$detail" | tr -c '[:print:]' ' ')
  printf '{"step":"%s","ok":%s,"detail":"%s"%s}\n' "$1" "$2" "$detail" "$4"
}

run_steps() {
  local step detail status failed=0
  for step in ${steps//,/ }; do
    if ! declare -F "do_$step" >/dev/null; then
      tell "$step" false "the tool has no way to say it" ',"absent":true'
      continue
    fi
    detail=$(set -e; "do_$step")
    status=$?
    case $status in
      0) tell "$step" true "$detail" "" ;;
      42) tell "$step" false "$detail" ',"refused":true' ;;
      43) tell "$step" false "$detail" ',"absent":true' ;;
      *)
        failed=1
        tell "$step" false "${detail:-ended with $status}" ""
        ;;
    esac
  done
  exit $failed
}
