# Reads what go test has printed and passes on what failed: tests with their logs, panics, races, leaks, packages. Left out are
# packages that passed, and what libraries and programs under test have said in between.

# Noise, wherever it stands.
/^redis: [0-9]/ { next }
/^(ok|\?)[ \t]/ || /^PASS$/ { state = ""; next }

# Between two rules stands a race, in the middle of anything.
/^==================$/ { race = !race; print; next }
race { print; next }

/^(FAIL|exit status|signal:|make(\[[0-9]+\])?:)/ { state = ""; print; next }
/^ *--- FAIL/ { state = "test"; print; next }
/^# / { state = "all"; print; next } # a package that cannot be built
/^(panic|fatal error|goleak|runtime|testing|unexpected fault|SIG[A-Z]+|WARNING):/ { state = "all"; print; next }
state == "all" { print; next }
state == "test" && (/^[ \t]/ || /^$/) { print } # what the test has logged is indented
