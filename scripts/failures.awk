# Filters the output of go test for failures: tests with their logs, panics, races, leaks, packages. It drops passed packages and
# the output of libraries and programs under test.

# Noise, anywhere.
/^redis: [0-9]/ { next }
/^(ok|\?)[ \t]/ || /^PASS$/ { state = ""; next }

# A race report is between two rules, anywhere in the output.
/^==================$/ { race = !race; print; next }
race { print; next }

/^(FAIL|exit status|signal:|make(\[[0-9]+\])?:)/ { state = ""; print; next }
# Under -v, a test's log comes before its result.
/^=== / { state = ""; next }
/^ *--- (PASS|SKIP)/ { state = before = ""; next }
/^ *--- FAIL/ { state = "test"; print; printf "%s", before; before = ""; next }
/^# / { state = "all"; print; next } # a package that does not build
/^(panic|fatal error|goleak|runtime|testing|unexpected fault|SIG[A-Z]+|WARNING):/ { state = "all"; print; next }
state == "all" { print; next }
state == "test" && (/^[ \t]/ || /^$/) { print; next } # the test's log is indented
/^ +[a-z0-9_]+\.go:[0-9]+: / || before != "" && /^        / { before = before $0 "\n" }
