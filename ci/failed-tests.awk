# The names of the tests that failed, from what `cargo test -- --show-output` prints; with `-v said=1`, what each of
# them has said. Prints no name if it does not find as many as failed, as when a program of tests crashed.

# What a failed test has said comes after "failures:", and the names once more after that.
/^failures:$/ { among = 1; next }
/^test result: / {
    among = 0
    failures += $0 ~ /FAILED/ ? substr($0, match($0, /[0-9]+ failed/), RLENGTH) : 0
    counted += $0 ~ /FAILED/
    next
}
/^error: test failed, to rerun/ { ended++ }
!among { next }
/^---- .* stdout ----$/ { shown = 0; frames = 0 }
/^stack backtrace:$/ { frames = 1 }
/^note: Some details are omitted/ { frames = 0; next }
/^    [a-z0-9_]+(::[a-z0-9_]+)*$/ && !frames { names[$1]; next }
said && !frames && shown < 40 { print; shown++ }
END {
    for (name in names) found++
    if (!said && found == failures && counted == ended) for (name in names) print name
}
